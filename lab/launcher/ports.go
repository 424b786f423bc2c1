package launcher

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken from below the range that the system uses for outgoing connections, where such a connection could take a
// port after it was found free and before the component listens on it.
const firstPort, lastPort = 10240, 32767

// freePorts finds ports of the loopback interface on which no process listens. Two labs that start at the same moment draw
// at random, and so practically never the same.
func freePorts(ctx context.Context, count int) ([]int, error) {
	const attempts = 1000
	ports := make([]int, 0, count)
	for range attempts {
		port := firstPort + rand.IntN(lastPort-firstPort+1) //nolint:gosec // There is nothing to guess.
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", loopback(port))
		if err != nil {
			continue // The port is in use.
		}
		// Kept until all are found, so that none is found twice.
		defer func() { _ = listener.Close() }()
		if ports = append(ports, port); len(ports) == count {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("finding %d free ports between %d and %d on 127.0.0.1: %w", count, firstPort, lastPort, errors.New("too few"))
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
