package machine

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A Node is written a few times when its machine joins, changes, or is preserved, and seven times
// when it is updated in place. More writes mean that another client undoes each write of the fleet.
// At most maxNodeWrites are then sent in each nodeWriteWindow: otherwise the two clients would undo
// each other's writes without a pause.
const (
	maxNodeWrites   = 12
	nodeWriteWindow = 30 * time.Second
)

// writesOf identifies a Node among those of all target clusters: a cluster can give a Node the UID
// of another cluster's.
type writesOf struct {
	cluster string
	uid     types.UID
}

// nodeWriteLimit limits the writes of each Node to maxNodeWrites in a nodeWriteWindow. Create it
// with newNodeWriteLimit; it is safe for concurrent use.
type nodeWriteLimit struct {
	mu     sync.Mutex
	writes map[writesOf][]time.Time // the last maxNodeWrites of each
}

func newNodeWriteLimit() *nodeWriteLimit {
	return &nodeWriteLimit{writes: map[writesOf][]time.Time{}}
}

// wrote records a write of an object.
func (l *nodeWriteLimit) wrote(of writesOf, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes[of] = append(l.writes[of], now)
	if last := l.writes[of]; len(last) > maxNodeWrites {
		l.writes[of] = last[1:]
	}
}

// until returns the time before which the object must not be written; the zero Time when it may be
// written now.
func (l *nodeWriteLimit) until(of writesOf, now time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.writes[of]
	switch {
	case len(last) > 0 && !now.Before(last[len(last)-1].Add(nodeWriteWindow)):
		delete(l.writes, of) // long ago
	case len(last) == maxNodeWrites && now.Before(last[0].Add(nodeWriteWindow)):
		return last[0].Add(nodeWriteWindow)
	}
	return time.Time{}
}

func (l *nodeWriteLimit) forget(of writesOf) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.writes, of)
}
