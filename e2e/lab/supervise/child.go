package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// State is the state of a process for its supervisor.
type State string

// The states.
const (
	Running State = "running"
	Paused  State = "paused"
	Exited  State = "exited"
)

// Process describes a process.
type Process struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	// PID is 0 when the process has ended.
	PID int `json:"pid"`
	// Starts counts its starts.
	Starts int `json:"starts"`
	// StartedAt is the time of its last start.
	StartedAt time.Time `json:"startedAt"`
	// Exit is its result, as in "exit status 1" or "signal: killed"; "" while it runs.
	Exit string `json:"exit,omitempty"`
	// Returns reports whether it ended by itself and will be started again, after its back-off.
	Returns bool `json:"returns,omitempty"`
	// RSSBytes is its resident memory.
	RSSBytes int64 `json:"rssBytes"`
	// Log is the path of its log.
	Log string `json:"log"`
}

// child is one process over all of its lives.
type child struct {
	spec   Spec
	clock  clock.Clock
	acting sync.Mutex // held while it is started, stopped or signalled

	mu     sync.Mutex
	life   *life // the present or last one; nil before the first
	starts int
	// restarts since it was last started by an action, or last ran long enough.
	restarts int
}

// life is a process from its start to its end.
type life struct {
	id        ID
	startedAt time.Time
	// ended is closed when it has been reaped; exit is set before that, and has its result.
	ended chan struct{}
	exit  string
	// reported is closed when Config.Changed was called for that.
	reported chan struct{}

	settle sync.Once
	// settled is closed when it is decided whether a start follows this life.
	settled chan struct{}
}

// decide excludes the restart policy from the decision about a restart.
func (l *life) decide() {
	if l != nil {
		l.settle.Do(func() { close(l.settled) })
	}
}

func (l *life) isSettled() bool {
	select {
	case <-l.settled:
		return true
	default:
		return false
	}
}

// over reports whether there is no life (any more).
func (l *life) over() bool {
	if l == nil {
		return true
	}
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// signal sends a signal; ErrNotRunning if the life is over.
func (l *life) signal(sig syscall.Signal) error {
	if l.over() {
		return ErrNotRunning
	}
	err := l.id.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) {
		return ErrNotRunning
	}
	return err
}

func (c *child) current() *life {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.life
}

// start begins a life. changed is called when it has begun, and when it is over; then ended is
// called too.
func (c *child) start(cmd *exec.Cmd, changed func(), ended func(*life)) error {
	last := c.current()
	if !last.over() {
		return ErrRunning
	}
	log, err := os.OpenFile(c.spec.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening its log: %w", err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	// A separate session, so that Ctrl-C in the terminal of lab up does not reach it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting it: %w", err)
	}
	id, err := Identify(cmd.Process.Pid)
	if err != nil { // It is a child that is not reaped, so /proc itself has failed.
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return fmt.Errorf("starting it: %w", err)
	}
	l := &life{id: id, startedAt: c.clock.Now(), ended: make(chan struct{}), reported: make(chan struct{}), settled: make(chan struct{})}
	last.decide()
	c.mu.Lock()
	c.life = l
	c.starts++
	c.mu.Unlock()
	changed()
	go func() {
		_ = cmd.Wait() // ProcessState has the result.
		l.exit = cmd.ProcessState.String()
		close(l.ended)
		changed()
		close(l.reported)
		ended(l)
	}()
	return nil
}

func (c *child) stop(ctx context.Context, timeout time.Duration) error {
	l := c.current()
	l.decide()
	if err := l.signal(syscall.SIGTERM); err == nil {
		_ = l.signal(syscall.SIGCONT) // A paused process does not handle signals. An error means that it has ended.
		timer := c.clock.NewTimer(timeout)
		defer timer.Stop()
		select {
		case <-l.ended:
		case <-timer.C():
		case <-ctx.Done():
		}
	}
	return c.kill()
}

func (c *child) kill() error {
	c.current().decide()
	return c.crash()
}

// crash is kill without a decision about a restart.
func (c *child) crash() error {
	l := c.current()
	if l == nil {
		return nil
	}
	if err := l.signal(syscall.SIGKILL); err != nil && !errors.Is(err, ErrNotRunning) {
		return err
	}
	<-l.reported
	return nil
}

func (c *child) describe() Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := Process{Name: c.spec.Name, State: Exited, Starts: c.starts, Log: c.spec.Log}
	l := c.life
	if l == nil {
		return p
	}
	p.StartedAt = l.startedAt
	if l.over() {
		p.Exit, p.Returns = l.exit, c.spec.Restart != nil && !l.isSettled()
		return p
	}
	p.PID, p.State, p.RSSBytes = l.id.PID, Running, l.id.RSS()
	if l.id.State().Stopped() {
		p.State = Paused
	}
	return p
}
