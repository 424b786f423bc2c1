package patch

import (
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pace merges changes in quick succession into one write. Counters in a status change with every
// child: the first change is delayed for the interval, and all changes up to then are written at
// once. Where changes are known to go on for long, those that follow a write are delayed for the
// longest wait. Decisions are not delayed, only their report in the status.
type Pace struct {
	interval, longest time.Duration

	mu    sync.Mutex
	waits map[types.UID]*wait
}

// wait is that of one object.
type wait struct {
	since   time.Time // of the oldest delayed change; zero when there is none
	written time.Time // of the last write
	length  time.Duration
	overdue bool // the last write was rejected
}

// Change is how a status differs from what was written last.
type Change int

// The changes.
const (
	// Unchanged is a status that equals the written one.
	Unchanged Change = iota
	// Counted is a change that is delayed for the interval.
	Counted
	// Streaming is one of many changes of an operation in progress.
	Streaming
)

// deletingInterval is for objects that are being deleted: their status is not urgent.
const deletingInterval = 5 * time.Second

// NewPace creates a Pace that delays changes for the interval, and for longest where they stream.
func NewPace(interval, longest time.Duration) *Pace {
	return &Pace{interval: interval, longest: longest, waits: map[types.UID]*wait{}}
}

// Wait returns for how long a change of the object's status still has to be delayed; 0 means that
// it has to be written now, or that there is none.
func (p *Pace) Wait(obj metav1.Object, change Change, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.waits[obj.GetUID()]
	switch {
	case change == Unchanged && w == nil:
		return 0
	case change == Unchanged:
		w.since, w.overdue = time.Time{}, false
		return 0
	case w != nil && w.overdue:
		w.written, w.overdue = now, false
		return 0
	case w == nil:
		w = &wait{length: p.interval}
		p.waits[obj.GetUID()] = w
	case w.since.IsZero() && change == Streaming && now.Sub(w.written) <= p.longest:
		w.length = p.longest
	case w.since.IsZero() || change == Counted:
		w.length = p.interval
	}
	if w.since.IsZero() {
		w.since = now
	}
	length := w.length
	if obj.GetDeletionTimestamp() != nil {
		length = deletingInterval
	}
	remaining := max(length-now.Sub(w.since), 0)
	if remaining == 0 {
		w.since, w.written = time.Time{}, now
	}
	return remaining
}

// Failed reports that the change which Wait has allowed could not be written. It is written by the
// next pass without a delay: a pass that only delayed it would end without an error, as if the
// object did not fail, and its back-off would begin again. A conflict is no such failure: the next
// pass may decide on the same stale object.
func (p *Pace) Failed(obj metav1.Object, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.waits[obj.GetUID()]; w != nil {
		w.overdue = !apierrors.IsConflict(err)
	}
}

// Forget drops what is remembered of an object that was deleted.
func (p *Pace) Forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waits, uid)
}
