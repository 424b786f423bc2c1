package launcher

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/machine-controller-fleet/machine-controller-fleet/lab/supervise"
)

const (
	driverPrefix = "driver-"
	// cloudPlace is replaced by the URL of the cloud in the flags of a driver.
	cloudPlace = "{cloud}"
)

// driverProcess is a driver in a process of its own, which all replicas use.
type driverProcess struct {
	provider, program string
	flags             []string
}

// driverProcesses returns the drivers that the options name.
func (o *Options) driverProcesses() (drivers []driverProcess, err error) {
	for text := range strings.SplitSeq(o.Drivers, ";") {
		if strings.TrimSpace(text) == "" {
			continue
		}
		provider, command, _ := strings.Cut(strings.TrimSpace(text), "=")
		words := strings.Fields(command)
		if provider == "" || len(words) == 0 {
			return nil, fmt.Errorf("--drivers: expected PROVIDER=PROGRAM FLAG …, got %q", text)
		}
		drivers = append(drivers, driverProcess{provider: provider, program: words[0], flags: words[1:]})
	}
	return drivers, nil
}

// socketOf returns the socket of the driver of a provider.
func (l *Launcher) socketOf(provider string) string {
	return filepath.Join(l.options.folder().path(socketsDir), provider+".sock")
}

// bootDrivers starts all drivers that have processes of their own, and waits until they listen.
func (l *Launcher) bootDrivers(ctx context.Context) error {
	drivers, err := l.options.driverProcesses()
	if err != nil || len(drivers) == 0 {
		return err
	}
	if err := os.MkdirAll(l.options.folder().path(socketsDir), 0o700); err != nil {
		return fmt.Errorf("making the folder of sockets: %w", err)
	}
	l.mu.Lock()
	cloud := l.endpoints[cloudsimName]
	l.mu.Unlock()
	for _, d := range drivers {
		socket := l.socketOf(d.provider)
		args := []string{"--socket=" + socket}
		for _, flag := range d.flags {
			args = append(args, strings.ReplaceAll(flag, cloudPlace, cloud))
		}
		spec := l.spec(driverPrefix+d.provider, d.program, args)
		if l.options.Restart == RestartAlways {
			spec.Restart = supervise.Kubelet()
		}
		l.sockets = append(l.sockets, d.provider+"="+socket)
		if err := l.bootProcess(ctx, spec, "unix://"+socket, socketProbe(socket)); err != nil {
			return err
		}
	}
	return nil
}

// socketProbe connects to a unix socket.
func socketProbe(socket string) probe {
	return func(ctx context.Context) error {
		conn, err := (&net.Dialer{Timeout: probeTimeout}).DialContext(ctx, "unix", socket)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}
