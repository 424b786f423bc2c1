package pacing

import (
	"sync"
	"time"
)

// Writes that follow from input which other clients can change at any rate are limited: up to the
// burst at once, and then one in the interval. A Node that joins, or becomes unhealthy and
// recovers, needs less than the burst.
const (
	// MachineBurst and MachineInterval are for writes of a Machine that has a VM.
	MachineBurst    = 10
	MachineInterval = 5 * time.Second
	// EventBurst and EventInterval are for Events of one reason on one object; StepEventBurst is for
	// reasons that each step of a rollout has, of which 1,000 machines have hundreds.
	EventBurst     = 20
	StepEventBurst = 5
	EventInterval  = 10 * time.Second
	// EvidenceBurst and EvidenceInterval are for calls of a cloud, in one namespace, that ask for the
	// VMs of Nodes that are unreachable. Such a call serves people only, and Nodes become unreachable
	// together.
	EvidenceBurst    = 10
	EvidenceInterval = 10 * time.Second
	// NamespaceEventBurst and NamespaceEventInterval are for all Events on objects of one namespace: a
	// rollout of 1,000 machines has some five Events for each, within several minutes.
	NamespaceEventBurst    = 1000
	NamespaceEventInterval = 50 * time.Millisecond
)

// RootInterval is for passes of a MachineDeployment or MachineSet, which look at all of its
// machines, for changes of single ones: 50 that are replaced have hundreds within some seconds.
const RootInterval = 100 * time.Millisecond

// Rates limit how often an operation is done, for each of many keys. Create one with New; it is
// safe for concurrent use.
type Rates[K comparable] struct {
	burst    int
	interval time.Duration

	mu    sync.Mutex
	paid  map[K]time.Time // by when the past operations would have been done at the rate of the interval
	purge int             // number of keys from which on those without effect are dropped
}

// NewRates creates Rates that allow a burst at once, and on average one in the interval.
func NewRates[K comparable](burst int, interval time.Duration) *Rates[K] {
	return &Rates[K]{burst: burst, interval: interval, paid: map[K]time.Time{}, purge: 1024}
}

// Wait returns how long it is until the operation may be done for the key; 0 means that it may be
// done now.
func (r *Rates[K]) Wait(key K, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(r.paid[key].Add(-time.Duration(r.burst-1)*r.interval).Sub(now), 0)
}

// Count records that the operation was done.
func (r *Rates[K]) Count(key K, now time.Time) { r.CountTimes(key, 1, now) }

// CountTimes records that the operation was done n times, also more often than it may be.
func (r *Rates[K]) CountTimes(key K, n int, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	from := r.paid[key]
	if from.Before(now) {
		from = now
	}
	r.paid[key] = from.Add(time.Duration(n) * r.interval)
	if len(r.paid) <= r.purge {
		return
	}
	for key, paid := range r.paid {
		if !paid.After(now) {
			delete(r.paid, key)
		}
	}
	r.purge = max(1024, 2*len(r.paid))
}

// Forget removes a key.
func (r *Rates[K]) Forget(key K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.paid, key)
}
