package scale

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// holds reports whether a machine must not be deleted because deletions are held. One that was
// recorded for deletion before and has no deletion timestamp stays, too.
func holds(w World, m *v1alpha1.Machine) bool {
	return w.Held && (w.Undecodable[m.UID] || !machinefacts.NeverRan(m))
}

// deletable returns the machines that may be deleted.
func deletable(w World, machines []*v1alpha1.Machine) []*v1alpha1.Machine {
	return slices.DeleteFunc(slices.Clone(machines), func(m *v1alpha1.Machine) bool { return holds(w, m) })
}

// held returns the condition of a set with a controller whose machines are not deleted because
// deletions are held. A set without one is a root, on which the controller of remediation writes
// the condition.
func held(w World) machinefacts.Condition {
	switch {
	case metav1.GetControllerOfNoCopy(w.Set) == nil, w.Held && w.HeldBy == "": // the latter: what holds them is not known yet
		return machinefacts.ConditionOfSet(&w.Set.Status, v1alpha1.MachineSetDeletionsHeld)
	case w.HeldBy == "" || !anyHeld(w):
		return machinefacts.Condition{}
	}
	return machinefacts.True(v1alpha1.ReasonHoldAnnotation, "Machines wait to be deleted. Deletions are held by the "+w.HeldBy)
}

// anyHeld reports whether a machine has to be deleted and is not, because deletions are held: the
// set has too many that ran, or is deleted itself.
func anyHeld(w World) bool {
	waiting := 0
	for _, m := range w.Owned {
		if m.DeletionTimestamp == nil && holds(w, m) && !isTransferred(w, m) {
			waiting++
		}
	}
	if w.Set.DeletionTimestamp != nil {
		return waiting > 0
	}
	return waiting > int(w.Set.Spec.Replicas)
}
