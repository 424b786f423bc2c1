package launcher

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports are taken from below the range that the system uses for outgoing connections, where such a
// connection could take a port after it was found free and before the component listens on it.
const firstPort, lastPort = 10240, 32767

// ports are the ports of one lab. It keeps them from the other labs of the machine, also while no
// process listens on them: before the component starts, and while it starts again. The zero value
// has none.
type ports struct {
	mu   sync.Mutex
	held []net.Listener // one for each port; they end with the process
}

// take finds ports of the loopback interface on which no process listens, and which no lab has.
func (p *ports) take(ctx context.Context, count int) ([]int, error) {
	const attempts = 1000
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := make([]int, 0, count)
	for range attempts {
		port := firstPort + rand.IntN(lastPort-firstPort+1) //nolint:gosec // There is nothing to guess.
		// A name of the system that only one process can have, and that is free again when the process
		// ends, however it ends.
		hold, err := (&net.ListenConfig{}).Listen(ctx, "unix", "@machine-controller-fleet-lab-port-"+strconv.Itoa(port))
		if err != nil {
			continue // A lab has the port.
		}
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", loopback(port))
		if err != nil {
			_ = hold.Close()
			continue // Another program uses the port.
		}
		_ = listener.Close()
		p.held = append(p.held, hold)
		if taken = append(taken, port); len(taken) == count {
			return taken, nil
		}
	}
	return nil, fmt.Errorf("finding %d free ports between %d and %d on 127.0.0.1: %w", count, firstPort, lastPort, errors.New("too few"))
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
