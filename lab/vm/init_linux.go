package vm

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// shutdownTime is how long processes may take to end when the machine shuts down.
const shutdownTime = 3 * time.Second

// boot is the life of a machine, seen from its first process.
func boot(dir, hyperkube string, clk clock.Clock) error {
	c, err := ReadConfig(filepath.Join((&Config{Dir: dir}).kubeletDir(), filepath.Base(ConfigPath)))
	if err != nil {
		return err
	}
	if err := checkWatches(); err != nil {
		return err
	}
	if err := mountMachine(&c, hyperkube); err != nil {
		return err
	}
	const longest = 63 // Linux allows no longer one.
	if err := syscall.Sethostname([]byte(c.Name[:min(len(c.Name), longest)])); err != nil {
		return fmt.Errorf("setting the host's name: %w", err)
	}
	wishes := make(chan os.Signal, 1)
	signal.Notify(wishes, syscall.SIGTERM, syscall.SIGINT)

	// Not with os/exec: this process waits for any child, and an exec.Cmd would wait for its own.
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Dir: "/"}
	kubelet, err := syscall.ForkExec(hyperkubePath, []string{"hyperkube", "kubelet"}, attr)
	if err != nil {
		return fmt.Errorf("starting the kubelet: %w", err)
	}
	asked := make(chan struct{})
	go func() {
		<-wishes
		close(asked)
		shutDown(clk)
	}()
	status, err := reap(kubelet)
	if err != nil {
		return err
	}
	select {
	case <-asked:
		return reapAll() // A requested shutdown is no error.
	default:
	}
	go shutDown(clk)
	return errors.Join(fmt.Errorf("the kubelet ended with %s", describe(status)), reapAll())
}

// shutDown ends all processes with SIGTERM, and with SIGKILL a little later.
func shutDown(clk clock.Clock) {
	const everybodyElse = -1
	_ = syscall.Kill(everybodyElse, syscall.SIGTERM)
	clk.Sleep(shutdownTime)
	_ = syscall.Kill(everybodyElse, syscall.SIGKILL)
}

// reap reaps children until a certain one has ended, and returns its status.
func reap(child int) (syscall.WaitStatus, error) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 0, fmt.Errorf("waiting for the kubelet: %w", err)
		case pid == child:
			return status, nil
		}
	}
}

// reapAll reaps children until there are none.
func reapAll() error {
	for {
		switch _, err := syscall.Wait4(-1, nil, 0, nil); {
		case errors.Is(err, syscall.ECHILD):
			return nil
		case err != nil && !errors.Is(err, syscall.EINTR):
			return fmt.Errorf("waiting for processes to end: %w", err)
		}
	}
}

func describe(status syscall.WaitStatus) string {
	if status.Signaled() {
		return "signal " + status.Signal().String()
	}
	return fmt.Sprintf("exit status %d", status.ExitStatus())
}
