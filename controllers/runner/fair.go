package runner

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// fairQueue keeps the keys of each group in the order in which they came, and takes the next key from each group in turn:
// a group with thousands of keys delays a key of another by one of its own.
type fairQueue[K comparable] struct {
	group func(K) int
	clock clock.PassiveClock

	mu     sync.Mutex // the work queue calls under a lock of its own; this one is for the metric
	groups map[int][]waitingKey[K]
	turns  []int // groups that have keys, the next one first
	keys   int
}

type waitingKey[K comparable] struct {
	key   K
	since time.Time
}

var _ workqueue.Queue[string] = (*fairQueue[string])(nil)

func newFairQueue[K comparable](group func(K) int, c clock.PassiveClock) *fairQueue[K] {
	return &fairQueue[K]{group: group, clock: c, groups: map[int][]waitingKey[K]{}}
}

// Touch does nothing: a key that waits keeps its place.
func (q *fairQueue[K]) Touch(K) {}

// Push puts a key at the end of its group.
func (q *fairQueue[K]) Push(key K) {
	g := q.group(key)
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.groups[g]) == 0 {
		q.turns = append(q.turns, g)
	}
	q.groups[g] = append(q.groups[g], waitingKey[K]{key, q.clock.Now()})
	q.keys++
}

// Len is how many keys wait.
func (q *fairQueue[K]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.keys
}

// Pop takes the next key of the group whose turn it is. The work queue calls it only while keys wait.
func (q *fairQueue[K]) Pop() K {
	q.mu.Lock()
	defer q.mu.Unlock()
	g := q.turns[0]
	q.turns = q.turns[1:]
	next := q.groups[g][0]
	if rest := q.groups[g][1:]; len(rest) > 0 {
		q.groups[g] = rest
		q.turns = append(q.turns, g)
	} else {
		delete(q.groups, g)
	}
	q.keys--
	return next.key
}

// oldest returns how long the key has waited that has done so for longest; 0 when none waits.
func (q *fairQueue[K]) oldest() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	var age time.Duration
	for _, waiting := range q.groups {
		age = max(age, q.clock.Since(waiting[0].since))
	}
	return age
}
