package supervise

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/labtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// reported records the last call of Config.Changed.
type reported struct {
	mu   sync.Mutex
	live map[string]ID
}

func (t *reported) change(live map[string]ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.live = live
}

func (t *reported) pid(name string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.live[name].PID
}

// launch starts a shell script under a new supervisor, and waits until it has written a line to its
// log. Only one that ignores it is killed soon after SIGTERM.
func launch(t *testing.T, script string) (*Supervisor, *reported) {
	t.Helper()
	changes, timeout := &reported{}, labtest.Standstill
	if script == ignoresSIGTERM {
		timeout = 100 * time.Millisecond
	}
	s := New(Config{Env: []string{"SUPERVISE_TEST=yes"}, StopTimeout: timeout, Changed: changes.change, Clock: clock.RealClock{}})
	spec := Spec{Name: "it", Path: "/bin/sh", Args: []string{"-c", script}, Log: filepath.Join(t.TempDir(), "it.log")}
	if err := s.Launch(spec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.WithoutCancel(t.Context()), "it"); err != nil {
			t.Error(err)
		}
	})
	labtest.For(t, "it has written a line", func() bool {
		data, err := os.ReadFile(spec.Log)
		return err == nil && len(data) > 0
	})
	return s, changes
}

func get(t *testing.T, s *Supervisor) Process {
	t.Helper()
	p, err := s.Get("it")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const (
	endsOnSIGTERM  = "echo up; exec sleep 60"
	ignoresSIGTERM = "trap '' TERM; echo up; while :; do sleep 60; done"
)

func TestEnds(t *testing.T) {
	stop := func(s *Supervisor) error { return s.Stop(context.Background(), "it") }
	kill := func(s *Supervisor) error { return s.Kill("it") }
	pauseAndStop := func(s *Supervisor) error { return errors.Join(s.Pause("it"), stop(s)) }
	tests := map[string]struct {
		script string
		end    func(*Supervisor) error
		exit   string
	}{
		"stop":                     {endsOnSIGTERM, stop, "signal: terminated"},
		"stop one that ignores it": {ignoresSIGTERM, stop, "signal: killed"},
		"stop the paused":          {endsOnSIGTERM, pauseAndStop, "signal: terminated"},
		"stop, caller cancelled":   {ignoresSIGTERM, func(s *Supervisor) error { return s.Stop(cancelled(), "it") }, "signal: killed"},
		"kill":                     {endsOnSIGTERM, kill, "signal: killed"},
		"kill the paused":          {endsOnSIGTERM, func(s *Supervisor) error { return errors.Join(s.Pause("it"), kill(s)) }, "signal: killed"},
		"stop twice":               {endsOnSIGTERM, func(s *Supervisor) error { return errors.Join(stop(s), stop(s)) }, "signal: terminated"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s, changes := launch(t, test.script)
			if pid := changes.pid("it"); pid == 0 || pid != get(t, s).PID {
				t.Errorf("reported process %d, it is %d", pid, get(t, s).PID)
			}
			if err := test.end(s); err != nil {
				t.Fatal(err)
			}
			if pid := changes.pid("it"); pid != 0 {
				t.Errorf("still reported process %d", pid)
			}
			got := get(t, s)
			want := Process{Name: "it", State: Exited, Starts: 1, StartedAt: got.StartedAt, Exit: test.exit, Log: got.Log}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("process (-want +got):\n%s", diff)
			}
		})
	}
}

func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func TestPauseAndResume(t *testing.T) {
	s, _ := launch(t, endsOnSIGTERM)
	if err := s.Pause("it"); err != nil {
		t.Fatal(err)
	}
	labtest.For(t, "it is paused", func() bool { return get(t, s).State == Paused })
	if err := s.Resume("it"); err != nil {
		t.Fatal(err)
	}
	labtest.For(t, "it runs", func() bool { return get(t, s).State == Running })
}

func TestRestart(t *testing.T) {
	s, changes := launch(t, endsOnSIGTERM)
	first := get(t, s)
	if err := s.Start("it"); !errors.Is(err, ErrRunning) {
		t.Errorf("starting what runs: %v, want %v", err, ErrRunning)
	}
	if err := s.Restart(t.Context(), "it"); err != nil {
		t.Fatal(err)
	}
	second := get(t, s)
	if second.PID == first.PID || second.Starts != 2 || second.State != Running || changes.pid("it") != second.PID {
		t.Errorf("after the restart: %+v (before: %+v), reported process %d", second, first, changes.pid("it"))
	}
}

// A process that ends by itself is not restarted, and its end is reported.
func TestUnexpectedEnd(t *testing.T) {
	s, changes := launch(t, "echo up; exit 3")
	ended, err := s.Ended("it")
	if err != nil {
		t.Fatal(err)
	}
	<-ended
	labtest.For(t, "its end is reported", func() bool { return changes.pid("it") == 0 })
	if got := get(t, s); got.State != Exited || got.Exit != "exit status 3" {
		t.Errorf("process: %+v", got)
	}
	if err := s.Pause("it"); !errors.Is(err, ErrNotRunning) {
		t.Errorf("pausing it: %v, want %v", err, ErrNotRunning)
	}
	if err := s.Start("it"); err != nil {
		t.Errorf("starting it again: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	s, _ := launch(t, endsOnSIGTERM)
	if err := s.Kill("other"); !errors.Is(err, ErrUnknown) {
		t.Errorf("killing an unknown process: %v, want %v", err, ErrUnknown)
	}
	if err := s.Launch(Spec{Name: "it"}); !errors.Is(err, ErrRunning) {
		t.Errorf("launching twice: %v, want %v", err, ErrRunning)
	}
	err := s.Launch(Spec{Name: "absent", Path: filepath.Join(t.TempDir(), "absent"), Log: os.DevNull})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("launching a program that does not exist: %v, want %v", err, os.ErrNotExist)
	}
	if p, err := s.Get("absent"); err != nil || p.State != Exited {
		t.Errorf("what could not be started: %+v, %v", p, err)
	}
}

func TestEnvironmentAndLog(t *testing.T) {
	s, _ := launch(t, "echo mark $SUPERVISE_TEST; echo error >&2; exec sleep 60")
	var data []byte
	labtest.For(t, "it has written to both", func() bool {
		var err error
		data, err = os.ReadFile(get(t, s).Log)
		return err == nil && strings.Contains(string(data), "error\n")
	})
	if got, want := string(data), "mark yes\nerror\n"; got != want {
		t.Errorf("log %q, want %q", got, want)
	}
}

// restarting launches a shell script that is restarted by the policy.
func restarting(t *testing.T, policy *Backoff, script string) *Supervisor {
	t.Helper()
	s := New(Config{StopTimeout: time.Minute, Changed: func(map[string]ID) {}, Clock: clock.RealClock{}})
	spec := Spec{
		Name: "it", Path: "/bin/sh", Args: []string{"-c", script}, Log: filepath.Join(t.TempDir(), "it.log"), StopTimeout: 100 * time.Millisecond,
		Restart: policy,
	}
	if err := s.Launch(spec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.WithoutCancel(t.Context()), "it"); err != nil {
			t.Error(err)
		}
	})
	return s
}

// A process that ends by itself is restarted, at once and then after a wait; one that was ended is
// not, whether it ran or waited.
func TestRestartPolicy(t *testing.T) {
	s := restarting(t, &Backoff{First: time.Hour, Max: time.Hour, Stable: time.Hour}, endsOnSIGTERM)
	if err := s.Crash("it"); err != nil {
		t.Fatal(err)
	}
	labtest.For(t, "it is restarted", func() bool { return get(t, s).Starts == 2 })
	if err := s.Crash("it"); err != nil {
		t.Fatal(err)
	}
	if p := get(t, s); p.State != Exited || !p.Returns {
		t.Errorf("after the second crash: %+v, want it to wait", p)
	}
	if err := s.Kill("it"); err != nil {
		t.Fatal(err)
	}
	if p := get(t, s); p.Returns {
		t.Errorf("ended while it waited: %+v", p)
	}
	for _, end := range []func() error{func() error { return s.Kill("it") }, func() error { return s.Stop(t.Context(), "it") }} {
		if err := errors.Join(s.Start("it"), end()); err != nil {
			t.Fatal(err)
		}
		if p := get(t, s); p.State != Exited || p.Returns {
			t.Errorf("ended: %+v", p)
		}
	}
	// It was started by an action, so the next crash counts as the first one.
	starts := get(t, s).Starts
	if err := errors.Join(s.Start("it"), s.Crash("it")); err != nil {
		t.Fatal(err)
	}
	labtest.For(t, "it is restarted", func() bool { return get(t, s).Starts == starts+2 })
}

func TestBackoff(t *testing.T) {
	var got []time.Duration
	for restarts := range 8 {
		got = append(got, Kubelet().wait(restarts)/time.Second)
	}
	if diff := cmp.Diff([]time.Duration{0, 10, 20, 40, 80, 160, 300, 300}, got); diff != "" {
		t.Errorf("seconds (-want +got):\n%s", diff)
	}
}

func TestForget(t *testing.T) {
	s, _ := launch(t, endsOnSIGTERM)
	if err := s.Forget("it"); !errors.Is(err, ErrRunning) {
		t.Errorf("forgetting what runs: %v, want %v", err, ErrRunning)
	}
	if err := errors.Join(s.Kill("it"), s.Forget("it")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get("it"); !errors.Is(err, ErrUnknown) {
		t.Errorf("it is still known: %v", err)
	}
	// The name can be used again.
	if err := s.Launch(Spec{Name: "it", Path: "/bin/sh", Args: []string{"-c", endsOnSIGTERM}, Log: os.DevNull}); err != nil {
		t.Error(err)
	}
}
