package vm

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"k8s.io/utils/clock"
)

// Main runs the commands Command and InitCommand. It returns when the machine is off.
func Main(ctx context.Context, command string, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("lab "+command, flag.ContinueOnError)
	var c Config
	var check bool
	hyperkube := siblingOfSelf("hyperkube")
	flags.BoolVar(&check, "check", false, "only check whether machines can run here")
	flags.StringVar(&hyperkube, "hyperkube", hyperkube, "`path` of the binary with the kubelet")
	c.Bind(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case command == InitCommand && check:
		return tryMachine(c.Dir)
	case command == InitCommand:
		return boot(c.Dir, hyperkube, clock.RealClock{})
	case check:
		return Check(ctx)
	}
	if err := c.Validate(); err != nil {
		return err
	}
	return run(ctx, &c, hyperkube, out)
}

func siblingOfSelf(name string) string {
	self, err := os.Executable()
	if err != nil {
		return name
	}
	return filepath.Join(filepath.Dir(self), name)
}

// run is the hull: it starts init in its own namespaces, forwards SIGTERM, and waits.
func run(ctx context.Context, c *Config, hyperkube string, out io.Writer) error {
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return fmt.Errorf("the absolute path of the disk: %w", err)
	}
	c.Dir = dir
	if err := c.writeDisk(); err != nil {
		return err
	}
	cmd, err := initCommand("--dir="+c.Dir, "--hyperkube="+hyperkube)
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	// Init dies with the thread that has started it, so this one must not end.
	runtime.LockOSThread()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the machine: %w", err)
	}
	fmt.Fprintf(out, "machine %s boots, its first process is %d\n", c.Name, cmd.Process.Pid)
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer stop()
	ended := cmd.Wait()
	// Only now: who finds the file may switch the machine on again.
	err = os.Rename(filepath.Join(c.kubeletDir(), filepath.Base(rebootPath)), filepath.Join(c.Dir, RebootFile))
	switch {
	case ended != nil:
		return fmt.Errorf("the machine ended: %w", ended)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("requesting a reboot: %w", err)
	}
	return nil
}

// Check returns why machines cannot run here, nil if they can.
func Check(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "lab-vm-check-")
	if err != nil {
		return fmt.Errorf("creating a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	cmd, err := initCommand("--dir="+dir, "--check")
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Cancel() })
	defer stop()
	output, err := cmd.CombinedOutput()
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return fmt.Errorf("no machine can boot: %s", output)
	}
	if err != nil {
		return fmt.Errorf("this system does not allow namespaces (run as root, or enable user namespaces): %w", err)
	}
	return nil
}

// initCommand returns the first process of a machine, in its own namespaces.
func initCommand(args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program, which is the machine's first process too: %w", err)
	}
	cmd := exec.Command(self, append([]string{InitCommand}, args...)...) //nolint:noctx // It is not ended by SIGKILL.
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		// The machine is killed with the hull.
		Pdeathsig: syscall.SIGKILL,
		// Ctrl-C is handled by the hull, which shuts the machine down.
		Setsid: true,
	}
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
	}
	return cmd, nil
}
