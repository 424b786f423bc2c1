package launcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/controlplane"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/proxy"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/supervise"
)

const (
	// bootTimeout bounds the whole boot, for what hangs. It takes 5 seconds, and minutes where a dozen
	// labs boot concurrently with other work. A process that has ended is no reason to wait.
	bootTimeout = 15 * time.Minute
	// stopTimeout is how long a process may take to end after SIGTERM.
	stopTimeout = 5 * time.Second
)

// Launcher is the process behind a lab.
type Launcher struct {
	options    Options
	clock      clock.WithTicker
	log        *slog.Logger
	supervisor *supervise.Supervisor
	proxies    *proxy.Set
	ports      ports
	// say reports progress to the command that waits for the boot.
	say func(string)

	// Set while booting, and not changed afterwards.
	etcd            *controlplane.Etcd
	control, target *controlplane.Cluster // may be one
	members         []*Member             // the target clusters of a landscape
	tracing         []string              // environment of the processes that send traces
	withoutFleet    bool                  // nothing of the fleet is installed
	sockets         []string              // of drivers in separate processes, as the fleet's flag has them

	scaling sync.Mutex // held while pods are created or removed, or etcd is restored

	mu        sync.Mutex
	state     State
	endpoints map[string]string
	probes    map[string]probe
	pods      map[string]Pod
}

// A probe finds out whether a process answers.
type probe func(context.Context) error

// Serve is the life of a launcher: it starts what the state file of the folder lists, reports when
// all of it is ready, and ends everything when ctx ends or a part of the boot fails, which it
// returns.
func Serve(ctx context.Context, folder Folder, clk clock.WithTicker, log *slog.Logger, say func(string), ready func()) error {
	state, err := folder.ReadState()
	if err != nil {
		return fmt.Errorf("reading the processes to start: %w", err)
	}
	l := &Launcher{
		options: state.Options, clock: clk, log: log, say: say, proxies: proxy.NewSet(),
		state: state, endpoints: map[string]string{}, probes: map[string]probe{}, pods: map[string]Pod{},
	}
	l.supervisor = supervise.New(supervise.Config{
		Env:         []string{IDVariable + "=" + state.ID},
		StopTimeout: stopTimeout, Changed: l.changed, Clock: clk,
	})
	// The shutdown has its own timeout, after ctx has ended.
	defer l.shutdown(context.WithoutCancel(ctx))
	l.changed(nil) // Records the launcher itself.

	closeAPI, err := l.listen(ctx)
	if err != nil {
		return err
	}
	defer closeAPI()
	bootCtx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	if err := l.boot(bootCtx); err != nil {
		return err
	}
	// The approver is not needed earlier: until a replica creates a machine, no Node joins.
	waitForApprover, err := l.startApprover(ctx)
	if err != nil {
		return err
	}
	defer waitForApprover()
	l.mu.Lock()
	l.state.Ready = true
	l.save()
	l.mu.Unlock()
	ready()
	<-ctx.Done()
	return nil
}

// listen serves the launcher's API, until the returned function is called.
func (l *Launcher) listen(ctx context.Context) (func(), error) {
	ports, err := l.ports.take(ctx, 1)
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", loopback(ports[0]))
	if err != nil {
		return nil, fmt.Errorf("listening for the launcher's API: %w", err)
	}
	server := &http.Server{Handler: l, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			l.log.Error("The launcher's API ended", "err", err)
		}
	}()
	l.endpoint(launcherName, "http://"+listener.Addr().String(), nil)
	return func() {
		_ = server.Close()
		<-served
	}, nil
}

// endpoint records the address of a process, and its probe.
func (l *Launcher) endpoint(name, url string, p probe) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if url != "" {
		l.endpoints[name] = url
	}
	if p != nil {
		l.probes[name] = p
	}
	if err := l.options.folder().writeJSON(endpointsFile, l.endpoints); err != nil {
		l.log.Error("Failed to write the endpoints", "err", err)
	}
}

// changed updates the files about processes.
func (l *Launcher) changed(live map[string]supervise.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	self, err := supervise.Identify(os.Getpid())
	if err != nil {
		l.log.Error("Failed to identify the launcher's own process", "err", err)
		return
	}
	l.state.Processes = map[string]supervise.ID{launcherName: self}
	maps.Copy(l.state.Processes, live)
	l.save()
}

// save writes the state; l.mu is held.
func (l *Launcher) save() {
	// First the file for Down, then those for other readers.
	if err := l.options.folder().writeJSON(stateFile, l.state); err != nil {
		l.log.Error("Failed to write the state", "err", err)
	}
	if err := l.options.folder().writeJSON(pidsFile, pids(l.state.Processes)); err != nil {
		l.log.Error("Failed to write the process numbers", "err", err)
	}
}

func pids(processes map[string]supervise.ID) map[string]int {
	numbers := map[string]int{}
	for name, id := range processes {
		numbers[name] = id.PID
	}
	return numbers
}

// shutdown ends everything: the processes that it started, the last first, and then their remaining
// children. Only the cloud gets time to end. The others would hand over, and clean up, for no one's
// use.
func (l *Launcher) shutdown(ctx context.Context) {
	for _, p := range slices.Backward(l.supervisor.List()) {
		end := func(_ context.Context, name string) error { return l.supervisor.Kill(name) }
		if p.Name == cloudsimName {
			end = l.supervisor.Stop
		}
		if err := end(ctx, p.Name); err != nil {
			l.log.Error("Failed to end a process", "process", p.Name, "err", err)
		}
	}
	l.proxies.CloseAll()
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	find := func() ([]supervise.ID, error) { return supervise.WithEnv(IDVariable, l.state.ID) }
	if _, err := supervise.End(ctx, l.clock, vmTimeout, find); err != nil {
		l.log.Error("Failed to end all processes", "err", err)
	}
	if err := os.RemoveAll(l.options.sockets()); err != nil { // it may be outside of the lab's folder
		l.log.Error("Failed to remove the sockets", "err", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.Processes, l.state.Ready = nil, false
	l.save()
	if err := l.options.folder().writeJSON(endpointsFile, map[string]string{}); err != nil {
		l.log.Error("Failed to remove the endpoints", "err", err)
	}
}

const (
	// vmTimeout is short: a VM without a cluster has no work.
	vmTimeout = 100 * time.Millisecond
	// endTimeout bounds the wait for processes that were sent SIGKILL.
	endTimeout = 10 * time.Minute
)
