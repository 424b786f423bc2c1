package assignment

import (
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// changing is the weight of a machine while it is created, deleted or not running: it is reconciled
// several times, a running one hardly ever.
const changing = 4

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
		case m.DeletionTimestamp != nil || m.Status.CurrentStatus.Phase != v1alpha1.MachineRunning:
			weights[slot] += changing
		default:
			weights[slot]++
		}
	}
	return weights
}
