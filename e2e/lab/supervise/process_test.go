package supervise

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/labtest"
)

// start runs a shell script as a child, waits until it has written a line, and reaps it when it
// ends.
func start(t *testing.T, env []string, script string) (ID, <-chan struct{}) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	id, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	return id, ended
}

func TestLifeCycleOfAProcess(t *testing.T) {
	id, ended := start(t, nil, "echo; exec sleep 60")
	if id.State().Gone() {
		t.Fatal("a live process counts as gone")
	}
	if id.RSS() == 0 {
		t.Error("a live process has no memory")
	}
	if err := id.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-ended
	if !id.State().Gone() {
		t.Errorf("state after its end: %q", id.State())
	}
	if err := id.Signal(syscall.SIGKILL); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal after its end: %v, want %v", err, os.ErrProcessDone)
	}
	if _, err := Identify(id.PID); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Identify after its end: %v, want %v", err, fs.ErrNotExist)
	}
}

// A number that is used again is not the process any more, and gets no signal.
func TestNumberUsedAgain(t *testing.T) {
	id, _ := start(t, nil, "echo; exec sleep 60")
	for name, other := range map[string]ID{
		"earlier process": {PID: id.PID, Start: id.Start - 1, Boot: id.Boot},
		"earlier boot":    {PID: id.PID, Start: id.Start, Boot: "another"},
	} {
		if !other.State().Gone() {
			t.Errorf("%s: counts as alive", name)
		}
		if err := other.Signal(syscall.SIGKILL); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("%s: signal: %v, want %v", name, err, os.ErrProcessDone)
		}
	}
	if id.State().Gone() {
		t.Error("the process that has the number now was hit")
	}
}

func TestEndFindsProcessesByEnvironment(t *testing.T) {
	mark := fmt.Sprintf("test-%d", os.Getpid())
	env := []string{"PROCESS_TEST=" + mark}
	for name, script := range map[string]string{
		"ends on SIGTERM": "echo; exec sleep 60",
		"ignores SIGTERM": "trap '' TERM; echo; while :; do sleep 60; done",
		"stopped":         "echo; kill -STOP $$; exec sleep 60",
		"grandchildren":   "setsid sleep 60 & setsid sleep 61 & echo; wait",
		"fresh children":  "trap 'setsid sleep 60 & exit' TERM; echo; while :; do sleep 1; done",
	} {
		t.Run(name, func(t *testing.T) {
			bystander, _ := start(t, []string{"PROCESS_TEST=" + mark + "0"}, "echo; exec sleep 60")
			_, ended := start(t, env, script)
			find := func() ([]ID, error) { return WithEnv("PROCESS_TEST", mark) }
			ctx, cancel := context.WithTimeout(t.Context(), labtest.Standstill)
			defer cancel()
			count, err := End(ctx, clock.RealClock{}, 100*time.Millisecond, find)
			if err != nil || count == 0 {
				t.Fatalf("End = %d, %v", count, err)
			}
			<-ended
			if left, err := find(); err != nil || len(left) != 0 {
				t.Errorf("left over: %v, %v", left, err)
			}
			if bystander.State().Gone() {
				t.Error("a process with another mark was ended")
			}
		})
	}
}
