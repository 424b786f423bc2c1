package runner

import (
	"sort"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// fairQueue keeps the keys of each group of a tenant in the order in which they were added. It
// takes the next key from each tenant in turn, and from the tenant's groups in turn: a tenant or a
// group with thousands of keys delays a key of another by its own. While the maximum number of a
// tenant's keys is in work, its other keys wait without a worker.
type fairQueue[K comparable] struct {
	tenant func(K) string
	group  func(K) int
	most   int // keys of a tenant in work; 0 means any number
	clock  clock.PassiveClock

	mu      sync.Mutex // the work queue calls under its own lock; this one is for done and for the metric
	tenants map[string]*line[K]
	turns   []*line[K]      // tenants with keys that may be taken, the next one first
	ready   int             // keys that may be taken
	taken   map[K]time.Time // since when each key in work had waited
}

// line is the waiting keys of a tenant.
type line[K comparable] struct {
	groups          map[int][]waitingKey[K]
	turns           []int // groups that have keys, the next one first
	waiting, inWork int
	hasTurn         bool
}

type waitingKey[K comparable] struct {
	key   K
	since time.Time
}

var _ workqueue.Queue[string] = (*fairQueue[string])(nil)

func newFairQueue[K comparable](tenant func(K) string, group func(K) int, most int, c clock.PassiveClock) *fairQueue[K] {
	return &fairQueue[K]{tenant: tenant, group: group, most: most, clock: c, tenants: map[string]*line[K]{}, taken: map[K]time.Time{}}
}

// Touch does nothing: a key that waits keeps its place.
func (q *fairQueue[K]) Touch(K) {}

// Push puts a key at the end of its group.
func (q *fairQueue[K]) Push(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.change(q.tenant(key), func(l *line[K]) { l.push(q.group(key), waitingKey[K]{key, q.clock.Now()}) })
}

// Len returns how many keys may be taken. It can grow without a Push, by done: the worker that
// called it takes a key next.
func (q *fairQueue[K]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ready
}

// Pop takes the next key of the tenant whose turn it is. The work queue calls it only while keys
// may be taken.
func (q *fairQueue[K]) Pop() (key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	next := q.turns[0]
	q.turns, next.hasTurn = q.turns[1:], false
	first := next.groups[next.turns[0]][0]
	key = first.key
	q.taken[key] = first.since
	q.change(q.tenant(key), func(l *line[K]) {
		l.pop()
		l.inWork++
	})
	return key
}

// done makes room for another key of the tenant of a key that was taken.
func (q *fairQueue[K]) done(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.taken, key)
	q.change(q.tenant(key), func(l *line[K]) { l.inWork-- })
}

// since returns since when a key in work had waited before it was taken; the zero time for any
// other key.
func (q *fairQueue[K]) since(key K) time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.taken[key]
}

// change changes the line of a tenant, which gets its turn if it has keys that may be taken.
func (q *fairQueue[K]) change(tenant string, f func(*line[K])) {
	l := q.tenants[tenant]
	if l == nil {
		l = &line[K]{groups: map[int][]waitingKey[K]{}}
		q.tenants[tenant] = l
	}
	q.ready -= q.readyIn(l)
	f(l)
	ready := q.readyIn(l)
	q.ready += ready
	if ready > 0 && !l.hasTurn {
		q.turns, l.hasTurn = append(q.turns, l), true
	}
	if l.waiting == 0 && l.inWork == 0 {
		delete(q.tenants, tenant)
	}
}

// readyIn returns how many keys of a tenant may be taken. Only Pop reduces it, so that a tenant
// whose turn it is has one.
func (q *fairQueue[K]) readyIn(l *line[K]) int {
	if q.most == 0 {
		return l.waiting
	}
	return min(l.waiting, q.most-l.inWork)
}

func (l *line[K]) push(group int, key waitingKey[K]) {
	if len(l.groups[group]) == 0 {
		l.turns = append(l.turns, group)
	}
	l.groups[group] = append(l.groups[group], key)
	l.waiting++
}

func (l *line[K]) pop() {
	group := l.turns[0]
	l.turns = l.turns[1:]
	if rest := l.groups[group][1:]; len(rest) > 0 {
		l.groups[group] = rest
		l.turns = append(l.turns, group)
	} else {
		delete(l.groups, group)
	}
	l.waiting--
}

// oldest returns how long the oldest waiting key has waited; 0 when none waits.
func (q *fairQueue[K]) oldest() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	var age time.Duration
	for _, l := range q.tenants {
		for _, waiting := range l.groups {
			age = max(age, q.clock.Since(waiting[0].since))
		}
	}
	return age
}

// overdue returns how many keys have waited for longer than after.
func (q *fairQueue[K]) overdue(after time.Duration) (keys int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.tenants {
		for _, waiting := range l.groups {
			// They are in the order in which they were added.
			keys += sort.Search(len(waiting), func(i int) bool { return q.clock.Since(waiting[i].since) <= after })
		}
	}
	return keys
}
