//go:build linux

package labtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const insideVariable = "MACHINETEST_INSIDE"

// Main is called by TestMain. It runs the test binary once more, as the first process of a machine,
// and inside of that the tests. Where no machine can be created it prints the cause, and runs no
// tests; with LAB_REQUIRE_KUBELET=1 that is a failure.
func Main(m *testing.M, check func(*testing.M)) {
	if os.Getenv(insideVariable) != "" {
		if err := mount(); err != nil {
			fmt.Fprintln(os.Stderr, "creating a machine for the tests:", err)
			os.Exit(1)
		}
		check(m)
		return
	}
	cmd := exec.Command(os.Args[0], os.Args[1:]...) //nolint:gosec,noctx // It is this very program, and as long as it runs.
	cmd.Env = append(os.Environ(), insideVariable+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS}
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: gid, Size: 1}}
	}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode())
	case err != nil && os.Getenv("LAB_REQUIRE_KUBELET") == "1":
		fmt.Fprintln(os.Stderr, "no machine for the tests:", err)
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stdout, "tests skipped, no machine could be created:", err)
	}
}

func mount() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	return unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755")
}
