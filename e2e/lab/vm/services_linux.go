package vm

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// restartTime is how long after its end a service is started again.
const restartTime = time.Second

// service is a process that runs as long as the machine. It takes the place of a unit of systemd.
type service struct {
	name string
	path string
	args []string
	// restarts reports whether it is started again when it ends; else the machine ends with it.
	restarts bool
	pid      int
}

// services returns those of a machine. With a machine-config-daemon they are started again, as
// systemd would do: the daemon restores the configuration before one with which the kubelet does
// not start.
func services(c *Config) []*service {
	kubelet := &service{name: "kubelet", path: hyperkubePath, args: []string{"hyperkube", "kubelet"}, restarts: c.Daemon != ""}
	if c.Daemon == "" {
		return []*service{kubelet}
	}
	args := slices.Concat(machineArgs(), []string{
		"--kubeconfig=" + KubeletDir + "/kubeconfig", "--node-name=" + c.Name,
		"--health-url=http://" + net.JoinHostPort(c.NodeIP, strconv.Itoa(c.HealthPort)) + "/healthz",
	}, c.DaemonFlags)
	return []*service{kubelet, {name: "machine-config-daemon", path: daemonPath, args: args, restarts: true}}
}

// started returns the services that a machine runs, after it has carried out its user data. Without
// a #cloud-config that is all of them.
func started(c *Config) ([]*service, error) {
	all := services(c)
	userData, err := os.ReadFile(userDataPath)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the user data: %w", err)
	}
	config, err := ParseCloudConfig(userData)
	if err != nil {
		return nil, fmt.Errorf("the user data: %w", err)
	}
	if config == nil {
		return all, nil
	}
	root, err := os.OpenRoot(RootDir)
	if err != nil {
		return nil, fmt.Errorf("the machine's root: %w", err)
	}
	defer root.Close()
	s := &software{config: config, root: root, run: runInitial(c), log: os.Stderr, tried: map[string]error{}}
	for _, of := range all {
		s.services = append(s.services, of.unit())
	}
	switch _, err = os.Stat(userDataWrittenPath); {
	case err == nil:
		err = s.laterBoot()
	case errors.Is(err, fs.ErrNotExist):
		err = s.firstBoot(func() error { return os.WriteFile(userDataWrittenPath, nil, 0o600) })
	}
	if err != nil {
		return nil, fmt.Errorf("the user data: %w", err)
	}
	return slices.DeleteFunc(all, func(of *service) bool { return !slices.Contains(s.running, of.unit()) }), nil
}

// runInitial returns a function that runs the machine-config-daemon of a unit of user data to its
// end.
func runInitial(c *Config) func(exec []string) error {
	return func(exec []string) error {
		if c.Daemon == "" {
			return errors.New("this machine has no machine-config-daemon: start the lab with MACHINE_CONFIGURATION=1")
		}
		args, err := firstConfigurationArgs(exec)
		if err != nil {
			return err
		}
		daemon := &service{name: "machine-config-daemon", path: daemonPath, args: args}
		if err := daemon.start(); err != nil {
			return err
		}
		_, status, err := reap([]*service{daemon})
		if err == nil && status != 0 {
			err = fmt.Errorf("%s ended with %s", daemon.name, describe(status))
		}
		return err
	}
}

// unit is the name of the service for user data.
func (s *service) unit() string { return s.name + ".service" }

func (s *service) start() error {
	// Not with os/exec: supervise waits for any child, and an exec.Cmd would wait for its own.
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Dir: "/"}
	pid, err := syscall.ForkExec(s.path, s.args, attr)
	if err != nil {
		return fmt.Errorf("starting %s: %w", s.name, err)
	}
	s.pid = pid
	return nil
}

// supervise runs services, and reaps orphans, until a service ends that is not restarted, which is
// an error, or, after asked was closed, any service ends. A machine without services stays on until
// then.
func supervise(all []*service, asked <-chan struct{}, clk clock.Clock) error {
	if len(all) == 0 {
		<-asked
		return nil
	}
	for _, s := range all {
		if err := s.start(); err != nil {
			return err
		}
	}
	for {
		ended, status, err := reap(all)
		if err != nil {
			return err
		}
		reason := fmt.Errorf("%s ended with %s", ended.name, describe(status))
		if !ended.restarts {
			return reason
		}
		fmt.Fprintln(os.Stderr, reason)
		select {
		case <-asked:
			return nil
		case <-clk.After(restartTime): // Nothing is reaped meanwhile.
		}
		if err := ended.start(); err != nil {
			return err
		}
	}
}

// reap reaps children until a service has ended, and returns its status.
func reap(all []*service) (*service, syscall.WaitStatus, error) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err != nil {
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			return nil, 0, fmt.Errorf("waiting for processes to end: %w", err)
		}
		for _, s := range all {
			if s.pid == pid {
				return s, status, nil
			}
		}
	}
}

func describe(status syscall.WaitStatus) string {
	if status.Signaled() {
		return "signal " + status.Signal().String()
	}
	return fmt.Sprintf("exit status %d", status.ExitStatus())
}
