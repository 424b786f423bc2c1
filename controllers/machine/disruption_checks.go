package machine

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A Node is written a few times when its machine joins, changes, or is preserved, and seven times when it is updated in place. More
// writes mean that another client undoes each write of the fleet. At most disruptionWrites are then sent in each disruptionWindow:
// otherwise the two clients would undo each other's writes without a pause.
const (
	disruptionWrites = 12
	disruptionWindow = 30 * time.Second
)

// disruptionChecks remembers when objects were last written. Create it with newDisruptionChecks; it is safe for concurrent use.
type disruptionChecks struct {
	mu     sync.Mutex
	writes map[types.UID][]time.Time // the last disruptionWrites of each
}

func newDisruptionChecks() *disruptionChecks {
	return &disruptionChecks{writes: map[types.UID][]time.Time{}}
}

// wrote records a write.
func (b *disruptionChecks) wrote(uid types.UID, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writes[uid] = append(b.writes[uid], now)
	if last := b.writes[uid]; len(last) > disruptionWrites {
		b.writes[uid] = last[1:]
	}
}

// until returns the time before which the object must not be written; the zero Time when it may be written now.
func (b *disruptionChecks) until(uid types.UID, now time.Time) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	last := b.writes[uid]
	switch {
	case len(last) > 0 && !now.Before(last[len(last)-1].Add(disruptionWindow)):
		delete(b.writes, uid) // long ago
	case len(last) == disruptionWrites && now.Before(last[0].Add(disruptionWindow)):
		return last[0].Add(disruptionWindow)
	}
	return time.Time{}
}

func (b *disruptionChecks) forget(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.writes, uid)
}
