package pacing

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// log records what tasks do.
type log struct {
	mu    sync.Mutex
	lines []string
}

func (l *log) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

// newEntries returns what was done since the last time, once all goroutines are blocked.
func (l *log) newEntries() []string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = nil
	slices.Sort(lines)
	return lines
}

func (l *log) task(name string) func(context.Context) {
	return func(ctx context.Context) {
		l.add(name + " begins")
		<-ctx.Done()
		l.add(name + " ends")
	}
}

func TestTasksRunUntilTheyEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := &log{}, NewTasks()
		expect := func(when string, want ...string) {
			t.Helper()
			if got := l.newEntries(); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
		}
		early := s.Begin(l.task("early"))
		s.Begin(l.task("never"))()
		expect("before the Set runs")
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.Run(ctx)
		}()
		expect("when it runs", "early begins")
		late := s.Begin(l.task("late"))
		expect("while it runs", "late begins")
		early()
		early()
		expect("when one has ended", "early ends")
		stop()
		<-ended
		expect("when the Set has ended", "late ends")
		late()
		s.Begin(l.task("too late"))
		expect("after that")
	})
}
