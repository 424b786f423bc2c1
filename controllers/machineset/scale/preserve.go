package scale

import (
	"slices"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// autoPreserve returns the failed machines whose automatic preservation the set changes, in their
// new state: up to autoPreserveFailedMachineMax are preserved without a request, the newest first.
// If there are too many, the oldest are no longer preserved.
func autoPreserve(w World, standing []*v1alpha1.Machine) (changed []*v1alpha1.Machine) {
	var kept, free []*v1alpha1.Machine
	for _, m := range standing {
		switch {
		case w.Undecodable[m.UID]:
		case isAutoPreserved(m):
			kept = append(kept, m)
		case mayBeAutoPreserved(w, m):
			free = append(free, m)
		}
	}
	room := max(int(w.Set.Spec.AutoPreserveFailedMachineMax), 0) - len(kept) // MCM's own CRD allows negative numbers
	switch {
	case room > 0:
		newest := machinefacts.OldestFirst(free)
		slices.Reverse(newest)
		for _, m := range newest[:min(room, len(newest))] {
			changed = append(changed, withPreserve(m, v1alpha1.PreserveAuto))
		}
	case room < 0:
		for _, m := range machinefacts.OldestFirst(kept)[:-room] {
			changed = append(changed, withPreserve(m, ""))
		}
	}
	return changed
}

func isAutoPreserved(m *v1alpha1.Machine) bool {
	return m.DeletionTimestamp == nil && m.Annotations[v1alpha1.AnnotationPreserve] == v1alpha1.PreserveAuto
}

// mayBeAutoPreserved reports whether the machine has failed, has no requested preservation, and its
// preservation has not expired.
func mayBeAutoPreserved(w World, m *v1alpha1.Machine) bool {
	if !machinefacts.HasFailed(m) || machinefacts.IsPreservationOver(m, w.Now) {
		return false
	}
	switch machinefacts.PreserveValue(m) {
	case v1alpha1.PreserveNow, v1alpha1.PreserveWhenFailed, v1alpha1.PreserveAuto, v1alpha1.PreserveFalse:
		return false
	}
	return true
}

// withPreserve returns the machine with another value of the annotation; "" means without it.
func withPreserve(m *v1alpha1.Machine, value string) *v1alpha1.Machine {
	changed := m.DeepCopy()
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	if changed.Annotations[v1alpha1.AnnotationPreserve] = value; value == "" {
		delete(changed.Annotations, v1alpha1.AnnotationPreserve)
	}
	return changed
}

// untouched returns the machines without those that this pass has tried to change already.
func untouched(w World, machines []*v1alpha1.Machine) []*v1alpha1.Machine {
	return slices.DeleteFunc(slices.Clone(machines), func(m *v1alpha1.Machine) bool { return w.Done.Updated[m.UID] })
}
