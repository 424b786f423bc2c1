package guest

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue" //nolint:depguard // the lab is not the fleet: it has no runner
	"k8s.io/utils/clock"
)

// Never is returned by a step that is only called again after a Wake.
const Never time.Duration = -1

// Step does what is due for a key and returns after how long to call it again; 0 is at once.
type Step[K comparable] func(ctx context.Context, key K) time.Duration

// Loop calls a Step for each key when it is due. The zero value is not usable; see New.
type Loop[K comparable] struct {
	queue workqueue.TypedDelayingInterface[K]
	step  Step[K]
}

// NewLoop returns a Loop. Keys can be woken at once; steps begin with Run.
func NewLoop[K comparable](clk clock.WithTicker, step Step[K]) *Loop[K] {
	return &Loop[K]{
		queue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[K]{Clock: clk}),
		step:  step,
	}
}

// Wake makes the key due now.
func (l *Loop[K]) Wake(key K) { l.queue.Add(key) }

// WakeAfter makes the key due after d, or earlier if it is due earlier anyway.
func (l *Loop[K]) WakeAfter(key K, d time.Duration) { l.queue.AddAfter(key, d) }

// Stop ends a Loop that may never have been run. It may be called more than once.
func (l *Loop[K]) Stop() { l.queue.ShutDown() }

// Run steps keys, at most workers at a time, until ctx ends, and returns when the last step has. It
// runs once.
func (l *Loop[K]) Run(ctx context.Context, workers int) {
	stop := context.AfterFunc(ctx, l.Stop)
	defer stop()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for l.next(ctx) {
			}
		})
	}
	wg.Wait()
}

// next steps one key; it returns false when the loop has ended.
func (l *Loop[K]) next(ctx context.Context) bool {
	key, ended := l.queue.Get()
	if ended {
		return false
	}
	defer l.queue.Done(key)
	if ctx.Err() != nil {
		return true // Drain the remaining keys without stepping them.
	}
	if again := l.step(ctx, key); again >= 0 {
		l.queue.AddAfter(key, again)
	}
	return true
}
