//go:build e2e

package scale

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// command returns the command for a program of bin, which make scale-e2e builds, that appends to a
// log in the scene's folder.
func (s *scene) command(program string, args ...string) *exec.Cmd {
	s.t.Helper()
	bin, err := harness.Bin()
	if err != nil {
		s.t.Fatal(err)
	}
	log, err := os.OpenFile(filepath.Join(s.dir, filepath.Base(program)+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := log.Close(); err != nil {
			s.t.Error(err)
		}
	})
	cmd := exec.CommandContext(s.ctx, filepath.Join(bin, program), args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.Env = log, log, s.dir, os.Environ()
	// It ends with the test's own process, also when that is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// start starts a command that runs until the end of the test.
func (s *scene) start(cmd *exec.Cmd) {
	s.t.Helper()
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		err := cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		if err != nil && !errors.Is(err, os.ErrProcessDone) {
			s.t.Error(err)
		}
	})
}

// run runs a command until it ends by itself.
func (s *scene) run(cmd *exec.Cmd) {
	s.t.Helper()
	if err := cmd.Run(); err != nil {
		s.t.Fatalf("%s: %v; its log is in %s", cmd, err, s.dir)
	}
}
