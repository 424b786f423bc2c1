package scale

import (
	"cmp"
	"slices"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinefacts"
)

// autoPreserve returns failed machines that the set wants to have preserved although nobody has asked for it, as they
// should stand: up to autoPreserveFailedMachineMax, the newest first. When there are too many, it is the oldest that it
// does not want to have preserved any more.
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
	room := max(int(w.Set.Spec.AutoPreserveFailedMachineMax), 0) - len(kept) // MCM's own definition allows less than 0
	switch {
	case room > 0:
		newest := byAge(free)
		slices.Reverse(newest)
		for _, m := range newest[:min(room, len(newest))] {
			changed = append(changed, withPreserve(m, v1alpha1.PreserveAuto))
		}
	case room < 0:
		for _, m := range byAge(kept)[:-room] {
			changed = append(changed, withPreserve(m, ""))
		}
	}
	return changed
}

func isAutoPreserved(m *v1alpha1.Machine) bool {
	return m.DeletionTimestamp == nil && m.Annotations[v1alpha1.AnnotationPreserve] == v1alpha1.PreserveAuto
}

// mayBeAutoPreserved says that the machine has failed, that nobody has said what is to become of it, and that its time is
// not over.
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

// byAge returns machines, the oldest first.
func byAge(machines []*v1alpha1.Machine) []*v1alpha1.Machine {
	return slices.SortedFunc(slices.Values(machines), func(a, b *v1alpha1.Machine) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
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

// untouched leaves out the machines that this pass has tried to change already.
func untouched(w World, machines []*v1alpha1.Machine) []*v1alpha1.Machine {
	return slices.DeleteFunc(slices.Clone(machines), func(m *v1alpha1.Machine) bool { return w.Done.Updated[m.UID] })
}
