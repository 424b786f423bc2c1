package vm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/google/uuid"
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
	if err := os.WriteFile(BootIDPath, []byte(uuid.NewString()+"\n"), 0o644); err != nil {
		return fmt.Errorf("writing the boot ID: %w", err)
	}
	if err := os.Remove(rebootPath); err != nil && !errors.Is(err, fs.ErrNotExist) { // The machine was switched off on its way down.
		return fmt.Errorf("removing a request of an earlier boot: %w", err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	asked := make(chan struct{})
	go func() {
		// As Linux sends it to the first process for Ctrl-Alt-Del.
		if <-signals == syscall.SIGINT {
			requestReboot()
		}
		close(asked)
		shutDown(clk)
	}()
	err = superviseAll(&c, asked, clk)
	select {
	case <-asked:
		return reapAll() // A requested shutdown is no error.
	default:
	}
	go shutDown(clk)
	return errors.Join(err, reapAll())
}

// superviseAll carries out the user data and supervises the services that it leaves running. What
// is wrong with the user data is on the console; the machine stays on, as one does whose kubelet is
// never started.
func superviseAll(c *Config, asked <-chan struct{}, clk clock.Clock) error {
	running, err := started(c)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	select {
	case <-asked:
		return nil
	default:
		return supervise(running, asked, clk)
	}
}

// requestReboot makes the shutdown a reboot.
func requestReboot() {
	if err := os.WriteFile(rebootPath, nil, 0o600); err != nil {
		fmt.Fprintln(os.Stderr, "requesting a reboot:", err)
	}
}

// shutDown ends all processes with SIGTERM, and with SIGKILL a little later.
func shutDown(clk clock.Clock) {
	const everybodyElse = -1
	_ = syscall.Kill(everybodyElse, syscall.SIGTERM)
	clk.Sleep(shutdownTime)
	_ = syscall.Kill(everybodyElse, syscall.SIGKILL)
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
