package machine

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A Node is written a few times when its machine joins, changes, or is preserved, and seven times when it is updated in
// place. One that is written more often is fought
// over: somebody else undoes each time what its machine asks for. Then it is written every now and then.
const (
	disruptionWrites = 12
	disruptionWindow = 30 * time.Second
)

// disruptionChecks remembers when objects were written last. Make one with newDisruptionChecks.
type disruptionChecks struct {
	mu     sync.Mutex
	writes map[types.UID][]time.Time // the last disruptionWrites of each
}

func newDisruptionChecks() *disruptionChecks {
	return &disruptionChecks{writes: map[types.UID][]time.Time{}}
}

// wrote notes a write.
func (b *disruptionChecks) wrote(uid types.UID, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writes[uid] = append(b.writes[uid], now)
	if last := b.writes[uid]; len(last) > disruptionWrites {
		b.writes[uid] = last[1:]
	}
}

// until is until when the object is to be left alone; zero when it may be written now.
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
