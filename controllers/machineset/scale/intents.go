package scale

import (
	"slices"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinefacts"
)

// sparesDoomed reports whether a failed machine of a set no longer has to be deleted: it has recovered, or the set is frozen
// and could not replace it.
func sparesDoomed(d machinefacts.Doomed, set *v1alpha1.MachineSet, m *v1alpha1.Machine) bool {
	return d.Failed && (!machinefacts.HasFailed(m) || machinefacts.IsFrozen(set))
}

// spares reports whether the machine is recorded for deletion and, in its current state, does not have to be deleted.
func spares(in machinefacts.Intents, set *v1alpha1.MachineSet, m *v1alpha1.Machine) bool {
	return m.DeletionTimestamp == nil && slices.ContainsFunc(in.Delete, func(d machinefacts.Doomed) bool { return d.UID == m.UID && sparesDoomed(d, set, m) })
}
