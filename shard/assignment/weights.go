package assignment

import (
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

const (
	// changing is the weight of a machine in transition. To replace one takes some 20 ms of CPU, and
	// the two of them are in transition for a minute; one at rest takes that in an hour. The weight is
	// less than this ratio, so that machines at rest, which take memory, are spread too. It is counted
	// and not measured: what slots took in the last minutes is known only when large rollouts are over
	// (TestBusiestReplicaOfALandscape).
	changing = 20
	// unsettled is the weight of any other machine that does not run: it waits, and is looked at
	// several times.
	unsettled = 4
)

// Weights returns the weights of slots, of count slots in all, by number: of those that are held,
// and of those of the machines given. A weight of 0 is explicit; a missing one is unknown.
func Weights(count int, holds func(slot int) bool, machines []*v1alpha1.Machine) map[int]int64 {
	weights := map[int]int64{}
	for slot := range count {
		if holds(slot) {
			weights[slot] = 0
		}
	}
	for _, m := range machines {
		slot, labeled := policy.Read(m.Labels[v1alpha1.LabelSlot], count)
		switch {
		case !labeled:
		case InTransition(m):
			weights[slot] += changing
		case m.Status.CurrentStatus.Phase != v1alpha1.MachineRunning:
			weights[slot] += unsettled
		default:
			weights[slot]++
		}
	}
	return weights
}
