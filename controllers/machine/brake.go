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
	brakeWrites = 12
	brakeWindow = 30 * time.Second
)

// brake remembers when objects were written last. Make one with newBrake.
type brake struct {
	mu     sync.Mutex
	writes map[types.UID][]time.Time // the last brakeWrites of each
}

func newBrake() *brake { return &brake{writes: map[types.UID][]time.Time{}} }

// wrote notes a write.
func (b *brake) wrote(uid types.UID, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writes[uid] = append(b.writes[uid], now)
	if last := b.writes[uid]; len(last) > brakeWrites {
		b.writes[uid] = last[1:]
	}
}

// until is until when the object is to be left alone; zero when it may be written now.
func (b *brake) until(uid types.UID, now time.Time) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	last := b.writes[uid]
	switch {
	case len(last) > 0 && !now.Before(last[len(last)-1].Add(brakeWindow)):
		delete(b.writes, uid) // long ago
	case len(last) == brakeWrites && now.Before(last[0].Add(brakeWindow)):
		return last[0].Add(brakeWindow)
	}
	return time.Time{}
}

func (b *brake) forget(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.writes, uid)
}
