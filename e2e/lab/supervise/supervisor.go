package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// Errors of actions.
var (
	// ErrUnknown: there is no process of that name.
	ErrUnknown = errors.New("unknown process")
	// ErrRunning: a process that runs cannot be started.
	ErrRunning = errors.New("runs already")
	// ErrNotRunning: a process that does not run cannot be paused or resumed.
	ErrNotRunning = errors.New("does not run")
)

// Config configures a Supervisor.
type Config struct {
	// Env is added to the environment of each process.
	Env []string
	// StopTimeout is how long Stop waits after SIGTERM before it sends SIGKILL, unless the process's
	// Spec sets its own.
	StopTimeout time.Duration
	// Changed is called with the processes that run, by name, after each change. Calls are serialized.
	Changed func(map[string]ID)
	// Clock times the timeouts.
	Clock clock.Clock
}

// Supervisor holds processes by name.
type Supervisor struct {
	config Config

	mu       sync.Mutex
	children map[string]*child
	order    []string // in which they were first started

	reporting sync.Mutex
}

// New returns a Supervisor without processes.
func New(config Config) *Supervisor {
	return &Supervisor{config: config, children: map[string]*child{}}
}

// Spec is how to start a process.
type Spec struct {
	Name string
	// Path of the program, and its arguments.
	Path string
	Args []string
	// Env is added to the environment, after that of the Config.
	Env []string
	// Log is the file to which both outputs are appended.
	Log string
	// StopTimeout, unless 0, overrides that of the Config.
	StopTimeout time.Duration
	// Restart is the back-off of restarts after it has ended by itself; nil means never.
	Restart *Backoff
}

// Launch adds a process by its name and starts it.
func (s *Supervisor) Launch(spec Spec) error {
	s.mu.Lock()
	_, known := s.children[spec.Name]
	if !known {
		s.children[spec.Name] = &child{spec: spec, clock: s.config.Clock}
		s.order = append(s.order, spec.Name)
	}
	s.mu.Unlock()
	if known {
		return fmt.Errorf("launching %q a second time: %w", spec.Name, ErrRunning)
	}
	return s.Start(spec.Name)
}

// Forget removes a process that has ended; its name can be launched again. ErrRunning if it runs.
func (s *Supervisor) Forget(name string) error {
	return s.act(name, func(c *child) error {
		if !c.current().over() {
			return ErrRunning
		}
		c.current().decide()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.children, name)
		s.order = slices.DeleteFunc(s.order, func(other string) bool { return other == name })
		return nil
	})
}

// Start starts a process that has ended.
func (s *Supervisor) Start(name string) error {
	return s.act(name, func(c *child) error {
		c.resetRestarts()
		return s.start(c)
	})
}

// Stop ends a process with SIGTERM, and with SIGKILL after the timeout or when ctx ends. It has no
// effect on one that does not run. The process is not restarted.
func (s *Supervisor) Stop(ctx context.Context, name string) error {
	return s.act(name, func(c *child) error { return c.stop(ctx, s.stopTimeout(c)) })
}

// Kill ends a process at once (SIGKILL). It has no effect on one that does not run. The process is
// not restarted.
func (s *Supervisor) Kill(name string) error {
	return s.act(name, func(c *child) error { return c.kill() })
}

// Crash ends a process at once (SIGKILL), as if it had died by itself: its Spec decides whether it
// is restarted.
func (s *Supervisor) Crash(name string) error {
	return s.act(name, func(c *child) error { return c.crash() })
}

// Pause suspends a process (SIGSTOP).
func (s *Supervisor) Pause(name string) error {
	return s.act(name, func(c *child) error { return c.current().signal(syscall.SIGSTOP) })
}

// Resume ends a pause.
func (s *Supervisor) Resume(name string) error {
	return s.act(name, func(c *child) error { return c.current().signal(syscall.SIGCONT) })
}

// Restart stops a process, if it runs, and starts it.
func (s *Supervisor) Restart(ctx context.Context, name string) error {
	return s.act(name, func(c *child) error {
		if err := c.stop(ctx, s.stopTimeout(c)); err != nil {
			return err
		}
		c.resetRestarts()
		return s.start(c)
	})
}

// List describes all processes, in the order of their first start.
func (s *Supervisor) List() []Process {
	var list []Process
	for _, name := range s.names() {
		if p, err := s.Get(name); err == nil {
			list = append(list, p)
		}
	}
	return list
}

// Get describes one process.
func (s *Supervisor) Get(name string) (Process, error) {
	c, err := s.child(name)
	if err != nil {
		return Process{}, err
	}
	return c.describe(), nil
}

// Ended is closed when the current life of the process has ended.
func (s *Supervisor) Ended(name string) (<-chan struct{}, error) {
	c, err := s.child(name)
	if err != nil {
		return nil, err
	}
	if l := c.current(); l != nil {
		return l.ended, nil
	}
	return nil, fmt.Errorf("process %q: %w", name, ErrNotRunning)
}

func (s *Supervisor) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.order)
}

func (s *Supervisor) child(name string) (*child, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.children[name]
	if !ok {
		return nil, fmt.Errorf("process %q: %w; there are %q", name, ErrUnknown, s.order)
	}
	return c, nil
}

func (s *Supervisor) act(name string, action func(*child) error) error {
	c, err := s.child(name)
	if err != nil {
		return err
	}
	c.acting.Lock()
	defer c.acting.Unlock()
	if err := action(c); err != nil {
		return fmt.Errorf("process %q: %w", name, err)
	}
	return nil
}

func (s *Supervisor) start(c *child) error {
	cmd := exec.Command(c.spec.Path, c.spec.Args...) //nolint:noctx // It outlives the request.
	cmd.Env = slices.Concat(os.Environ(), s.config.Env, c.spec.Env)
	return c.start(cmd, s.report, func(l *life) { s.comeBack(c, l) })
}

func (s *Supervisor) stopTimeout(c *child) time.Duration {
	return cmp.Or(c.spec.StopTimeout, s.config.StopTimeout)
}

// report calls Changed with the processes that run.
func (s *Supervisor) report() {
	s.reporting.Lock()
	defer s.reporting.Unlock()
	live := map[string]ID{}
	for _, name := range s.names() {
		if c, err := s.child(name); err == nil {
			if l := c.current(); !l.over() {
				live[name] = l.id
			}
		}
	}
	s.config.Changed(live)
}
