package commit

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pace collects changes that come in quick succession into one write. Counters in a status change with every child; the
// first change is held back for the interval, and what has come by then is written at once. Decisions are not delayed,
// only what is told of them.
type Pace struct {
	interval time.Duration

	mu    sync.Mutex
	since map[types.UID]time.Time
}

// deletingInterval is for objects that are being deleted: they have no audience in a hurry.
const deletingInterval = 5 * time.Second

// NewPace makes a Pace that holds changes back for the interval.
func NewPace(interval time.Duration) *Pace {
	return &Pace{interval: interval, since: map[types.UID]time.Time{}}
}

// Wait says how long a change of the object's status has to be held back still; 0 means that it is to be written now.
// changed is false when the status is as it was written last, so that nothing is held back.
func (p *Pace) Wait(obj metav1.Object, changed bool, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !changed {
		delete(p.since, obj.GetUID())
		return 0
	}
	interval := p.interval
	if obj.GetDeletionTimestamp() != nil {
		interval = deletingInterval
	}
	since, waiting := p.since[obj.GetUID()]
	if !waiting {
		p.since[obj.GetUID()] = now
		return interval
	}
	wait := max(interval-now.Sub(since), 0)
	if wait == 0 {
		delete(p.since, obj.GetUID())
	}
	return wait
}

// Forget drops what is remembered of an object that is gone.
func (p *Pace) Forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.since, uid)
}
