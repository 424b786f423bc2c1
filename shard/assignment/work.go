package assignment

import (
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// OverdueAfter is how long a key waits for a worker until it is overdue. A replica that acquires
// slots enqueues all of their objects and has worked through them before that
// (`restart_1000_max_seconds` in docs/benchmarks.md: 1,000 machines in at most 3 s), so that a
// hand-over makes no key overdue.
const OverdueAfter = 5 * time.Second

// Dimension is one kind of work; it is the label of the metric.
type Dimension string

// The dimensions.
const (
	// OfMachines are all machines in the slots of a replica: they take its memory.
	OfMachines Dimension = "machines"
	// OfTransitions are the machines that are created, updated in place or deleted: they take its
	// workers.
	OfTransitions Dimension = "transitions"
	// OfQueue is the keys that have waited for a worker for more than OverdueAfter.
	OfQueue Dimension = "queue"
)

// Work is the work of one replica, from which an autoscaler chooses the number of replicas. It has
// three dimensions, each with its own bound: machines take memory, machines in transition take
// workers, and keys that are overdue show that workers are missing.
//
// The load in a dimension is linear in the work. Every machine and every key belongs to one slot,
// and every slot to one replica, so the sum over all replicas depends on the work and not on where
// the slots are: a hand-over does not change it, and an autoscaler that acts on the sum does not
// react to its own rebalancing. A maximum over replicas would. The number of replicas needed is the
// sum over replicas in the dimension that needs most, since one replica has memory and workers at
// the same time.
//
// Work in slots that no replica reports is missing from the sum, and what two replicas reported one
// after the other is in it twice. So each replica also reports how many slots are in its load, and
// a reader ignores a sum of too few or too many of them; docs/operations/scaling.md has the query.
type Work struct {
	// Slots is the number of slots that the rest is in. A slot that is not open yet, or is handed
	// over, does not count: its objects are not known, and it would be taken for one without work.
	Slots                          int
	Machines, Transitions, Overdue int
}

// Capacity is the work that one replica should carry: its load is 1 then.
type Capacity struct {
	Machines, Transitions, Overdue float64
}

// CapacityOf returns the capacity of a replica with that many workers for one namespace
// (--concurrent-syncs).
//
//   - Machines, 4,000: a machine takes at most 50 kB of live heap (the bar of `heap_per_machine_kb`
//     in docs/benchmarks.md), and so up to 100 kB between two garbage collections; the chart's
//     memory limit is for 8,000. With half of that, one of two replicas has room for everything
//     while the other one is replaced.
//   - Transitions, three quarters of the workers: that many machines of one namespace, and calls
//     with one set of credentials, are in work at a time. Beyond all of them machines wait although
//     the cloud would answer; the last quarter is for the machines that are not in transition, and
//     for the time until the next replica has its share.
//   - Overdue keys, as many as workers: one more replica would have all of them in work at once.
func CapacityOf(workers int) Capacity {
	const machines, shareInTransition = 4000, 0.75
	return Capacity{Machines: machines, Transitions: shareInTransition * float64(workers), Overdue: float64(workers)}
}

// LoadOf returns the load of a replica by dimension. All dimensions are there; 0 is no work.
func LoadOf(w Work, c Capacity) map[Dimension]float64 {
	return map[Dimension]float64{
		OfMachines:    float64(w.Machines) / c.Machines,
		OfTransitions: float64(w.Transitions) / c.Transitions,
		OfQueue:       float64(w.Overdue) / c.Overdue,
	}
}

// InTransition reports whether a machine takes workers: it is created, updated in place or deleted.
// A machine that only waits does not, however long: for its Node to recover, to be replaced, or for
// the next attempt to create a VM that its cloud has refused. An outage of a zone, or a missing
// quota, is no reason for more replicas.
func InTransition(m *v1alpha1.Machine) bool {
	if m.DeletionTimestamp != nil {
		return true
	}
	switch m.Status.CurrentStatus.Phase { //nolint:exhaustive // in all other phases it rests
	case "", v1alpha1.MachinePending, v1alpha1.MachineTerminating, v1alpha1.MachineInPlaceUpdating, v1alpha1.MachineInPlaceUpdateSuccessful:
		return true
	}
	return false
}

// CountWork returns the work of a replica, of slots slots in all: of those that are open on it,
// with the machines of each, and with so many overdue keys.
func CountWork(slots int, isOpen func(slot int) bool, machinesOf func(slot int) []*v1alpha1.Machine, overdue int) Work {
	w := Work{Overdue: overdue}
	for slot := range slots {
		if !isOpen(slot) {
			continue
		}
		w.Slots++
		for _, m := range machinesOf(slot) {
			w.Machines++
			if InTransition(m) {
				w.Transitions++
			}
		}
	}
	return w
}
