package launcher

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver/plugin"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/supervise"
)

const (
	driverPrefix = "driver-"
	// simulatedProvider is the provider whose driver each replica has in a separate process, in
	// addition to those of the options.
	simulatedProvider = "simulated"
	// cloudPlace is replaced by the URL of the cloud in the flags of a driver.
	cloudPlace = "{cloud}"
)

// command is one of a list of commands in an option.
type command struct {
	// name is the provider of a driver, or the name of a cloud.
	name, program string
	flags         []string
}

// commandsOf reads an option that is a list of commands, split at semicolons.
func commandsOf(option, text string) (commands []command, err error) {
	for part := range strings.SplitSeq(text, ";") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		name, rest, _ := strings.Cut(strings.TrimSpace(part), "=")
		words := strings.Fields(rest)
		if name == "" || len(words) == 0 {
			return nil, fmt.Errorf("%s: expected NAME=PROGRAM FLAG …, got %q", option, part)
		}
		commands = append(commands, command{name: name, program: words[0], flags: words[1:]})
	}
	return commands, nil
}

// driverProcesses returns the drivers that the options name, by their providers.
func (o *Options) driverProcesses() ([]command, error) { return commandsOf("--drivers", o.Drivers) }

// socketOf returns the socket of a driver: that of a provider, or that of a pod.
func (o *Options) socketOf(name string) string {
	return filepath.Join(o.sockets(), name+".sock")
}

// sockets returns the folder of sockets: that of the lab, or a shorter one in the folder for
// temporary files, because the path of a socket is limited.
func (o *Options) sockets() string {
	folder := o.folder().path(socketsDir)
	if plugin.CheckSocket(filepath.Join(folder, replicaName(maxReplicas)+doubleSuffix+".sock")) == nil {
		return folder
	}
	sum := sha256.Sum256([]byte(folder))
	return filepath.Join(os.TempDir(), "lab-sockets-"+hex.EncodeToString(sum[:6]))
}

// createSockets creates the folder of sockets.
func (l *Launcher) createSockets() error {
	if err := os.MkdirAll(l.options.sockets(), 0o700); err != nil {
		return fmt.Errorf("create the folder of sockets: %w", err)
	}
	return nil
}

// driverOf is the name of the process of a pod's driver of the simulated cloud.
func driverOf(pod Pod) string { return driverPrefix + simulatedProvider + "-" + pod.Name }

// driverSpec is the process of a pod's driver of the simulated cloud, like a sidecar: it reaches
// the cloud through the pod's proxy.
func (l *Launcher) driverSpec(pod Pod) supervise.Spec {
	spec := l.spec(driverOf(pod), driverBinary, []string{
		"--socket=" + l.options.socketOf(pod.Name), "--metrics-address=" + loopback(pod.driverPort),
		"--endpoints=" + strings.TrimSuffix("http://"+l.linkAddress(pod, cloudLink)+","+l.options.CloudEndpoints, ","),
	})
	if l.restarts(pod) {
		spec.Restart = supervise.Kubelet()
	}
	return spec
}

// bootDrivers starts all drivers that have separate processes, which all replicas use, and
// waits until they listen.
func (l *Launcher) bootDrivers(ctx context.Context) error {
	drivers, err := l.options.driverProcesses()
	if err != nil || len(drivers) == 0 {
		return err
	}
	if err := l.createSockets(); err != nil {
		return err
	}
	for _, d := range drivers {
		socket := l.options.socketOf(d.name)
		args := []string{"--socket=" + socket}
		for _, flag := range d.flags {
			args = append(args, l.fillIn(flag))
		}
		spec := l.spec(driverPrefix+d.name, d.program, args)
		spec.Env = l.tracing
		if l.options.Restart == RestartAlways {
			spec.Restart = supervise.Kubelet()
		}
		l.sockets = append(l.sockets, d.name+"="+socket)
		if err := l.bootProcess(ctx, spec, "unix://"+socket, dialProbe("unix", socket)); err != nil {
			return err
		}
	}
	return nil
}

// fillIn replaces the places in a flag of a driver.
func (l *Launcher) fillIn(flag string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	places := []string{cloudPlace, l.endpoints[cloudsimName]}
	for name, url := range l.endpoints {
		if cloud, is := strings.CutPrefix(name, cloudPrefix); is {
			places = append(places, "{"+cloud+"}", url, "{"+cloud+certificateSuffix+"}", l.options.folder().path(certificateOf(cloud)))
		}
	}
	return strings.NewReplacer(places...).Replace(flag)
}

// dialProbe connects to an address.
func dialProbe(network, address string) probe {
	return func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}
