package pacing

import (
	"context"
	"sync"
)

// Tasks is a set of tasks that run concurrently. It is safe for concurrent use; create one with
// New.
type Tasks struct {
	kick chan struct{}

	mu    sync.Mutex
	begun []*task // that do not run yet
}

// NewTasks creates an empty Set.
func NewTasks() *Tasks { return &Tasks{kick: make(chan struct{}, 1)} }

// task is one task.
type task struct {
	run   func(ctx context.Context)
	mu    sync.Mutex
	stop  context.CancelFunc // nil before it runs
	ended bool
}

// Begin starts a task, as soon as the Set runs, until end is called; a second call of end has no
// effect. Neither waits.
func (s *Tasks) Begin(run func(ctx context.Context)) (end func()) {
	t := &task{run: run}
	s.mu.Lock()
	s.begun = append(s.begun, t)
	s.mu.Unlock()
	select {
	case s.kick <- struct{}{}:
	default: // Run is already notified
	}
	return t.end
}

func (t *task) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	if t.stop != nil {
		t.stop()
	}
}

// start returns the context of the task, unless it has ended already.
func (t *task) start(ctx context.Context) (context.Context, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return nil, false
	}
	ctx, t.stop = context.WithCancel(ctx)
	return ctx, true
}

// Run runs the tasks until ctx ends, and returns when all of them have.
func (s *Tasks) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		s.mu.Lock()
		begun := s.begun
		s.begun = nil
		s.mu.Unlock()
		for _, t := range begun {
			running.Go(func() {
				if ctx, ok := t.start(ctx); ok {
					defer t.end()
					t.run(ctx)
				}
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-s.kick:
		}
	}
}
