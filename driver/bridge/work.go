package bridge

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// errUnderWay is the cause of an error that is none: the driver still works.
var errUnderWay = errors.New("the driver's work for this machine is under way")

// maxTasks is how many Machines a bridge works for at a time.
const maxTasks = 2000

// work contains the tasks of the driver beyond single calls: at most one task for a Machine. It
// saves requests, and no correctness depends on it: a process that has forgotten its tasks asks the
// cloud.
type work struct {
	answerAfter, limit time.Duration

	mu      sync.Mutex
	running map[string]*task
}

// task is work for one Machine.
type task struct {
	op     driver.Op
	cancel context.CancelFunc
	done   chan struct{}
	value  any // valid when done is closed, as is err
	err    error
	// cancelled reports whether a call has cancelled it; guarded by the lock of work. Then its result
	// is of no call.
	cancelled bool
}

// await does some work of the driver for a Machine, or joins the same work that is under way, and
// waits for answerAfter. Its result is returned once. Errors: errUnderWay, with Aborted,
// while it or other work is under way; the end of ctx; those of the work.
//
// A cancelled call cancels the work: the fleet has given up the Machine's slot. One whose deadline
// has passed does not. Work that was cancelled is awaited, and then done anew.
func await[T any](ctx context.Context, w *work, op driver.Op, uid types.UID, do func(context.Context) (T, error)) (result T, err error) {
	if ctx.Err() != nil {
		return result, ended(ctx, op)
	}
	bounded, cancel := context.WithTimeout(ctx, w.answerAfter)
	defer cancel()
	for {
		t, err := w.join(ctx, op, string(uid), func(ctx context.Context) (any, error) { return do(ctx) })
		if err != nil {
			return result, err
		}
		select {
		case <-t.done:
			if w.forget(string(uid), t) {
				continue
			}
			result, _ = t.value.(T)
			return result, t.err
		case <-bounded.Done():
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			w.cancel(t)
		}
		if ctx.Err() != nil {
			return result, ended(ctx, op)
		}
		return result, underWay(op, t.op)
	}
}

// join returns the task of a Machine, and begins it if there is none.
func (w *work) join(ctx context.Context, op driver.Op, uid string, do func(context.Context) (any, error)) (*task, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.running[uid]
	switch {
	case t != nil && t.op == op:
		return t, nil
	case t != nil && !t.isDone():
		return nil, underWay(op, t.op)
	case t == nil && len(w.running) >= maxTasks && !w.evict():
		return nil, driver.Pendingf(op, driver.Unavailable,
			"the driver works for %d machines, which is the most; the request is sent again later", maxTasks)
	}
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.limit)
	t = &task{op: op, cancel: cancel, done: make(chan struct{})}
	w.running[uid] = t
	go func() {
		defer cancel()
		t.value, t.err = caught(op, func() (any, error) { return do(work) })
		close(t.done)
	}()
	return t, nil
}

// forget removes a task that has ended, and reports whether a call has cancelled it.
func (w *work) forget(uid string, t *task) (cancelled bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running[uid] == t {
		delete(w.running, uid)
	}
	return t.cancelled
}

// cancel cancels a task.
func (w *work) cancel(t *task) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.cancelled = true
	t.cancel()
}

// evict removes a task that has ended and whose result was not asked for; it reports whether there
// was one.
func (w *work) evict() bool {
	for uid, t := range w.running {
		if t.isDone() {
			delete(w.running, uid)
			return true
		}
	}
	return false
}

func (t *task) isDone() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// underWay is the error of a call that has to be sent again.
func underWay(op, other driver.Op) error {
	err := driver.Errorf(op, driver.Aborted, "%w: %s", errUnderWay, other)
	err.RetryAfter = askAgain
	return err
}
