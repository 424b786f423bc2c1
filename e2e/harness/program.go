package harness

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// StartProgram starts a program, of bin unless it is a path, until the end of the test, also beyond
// the end of ctx, in a folder that also has its log.
func StartProgram(ctx context.Context, t *testing.T, dir, program string, args ...string) {
	t.Helper()
	if !filepath.IsAbs(program) {
		bin, err := Bin()
		if err != nil {
			t.Fatal(err)
		}
		program = filepath.Join(bin, program)
	}
	log, err := os.Create(filepath.Join(dir, filepath.Base(program)+".log"))
	if err != nil {
		t.Fatal(err)
	}
	process := exec.CommandContext(context.WithoutCancel(ctx), program, args...)
	process.Stdout, process.Stderr, process.Dir = log, log, dir
	// It ends with the test's own process, also when that is killed.
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := process.Start(); err != nil {
		t.Fatalf("start %s, which the target of make that runs this test builds: %v", program, err)
	}
	t.Cleanup(func() {
		err := errors.Join(process.Process.Kill(), log.Close())
		_ = process.Wait() // it was killed
		if err != nil {
			t.Error(err)
		}
	})
}

// FreePort returns a port of the loopback interface that was free a moment ago.
func FreePort(ctx context.Context, t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
