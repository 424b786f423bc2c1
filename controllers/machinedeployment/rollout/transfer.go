package rollout

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// transfers moves machines whose update has succeeded to the set of their new template. The sets
// that they leave are kept from creating machines before.
func (s inPlaceUpdates) transfers() (v Verdict, moves bool) {
	v = Verdict{Do: WriteMachines}
	for _, t := range s.all() {
		if t.set.DeletionTimestamp != nil || !isClosed(t.set) {
			continue
		}
		gone := map[*tally][]string{}
		for _, m := range machinefacts.OldestFirst(s.w.Machines[t.set.UID]) {
			node := nodeOf(s.w.Nodes, m)
			if node == nil || t.intents.Deletes(m.UID) || !isUpdated(m, node) {
				continue
			}
			if to := s.destination(t, node); to != nil && to != t {
				v.Machines = append(v.Machines, transferred(m, t.set, to.set))
				gone[to] = append(gone[to], m.Name)
			}
		}
		for _, to := range s.all() {
			if names := gone[to]; len(names) > 0 {
				v.Events = append(v.Events, Event{v1alpha1.EventUpdatedInPlace, fmt.Sprintf(
					"Machines updated in place and moved to MachineSet %s: %s", to.set.Name, strings.Join(names, ", "))})
			}
		}
	}
	return v, len(v.Machines) > 0
}

func isClosed(set *v1alpha1.MachineSet) bool {
	_, disabled := set.Labels[v1alpha1.LabelScaleUpDisabled]
	return disabled
}

// transferred returns a machine as it is in its new set: with the values of the template of that
// one, and a label that keeps it from counting as one too many there until the set's size includes
// it. Name, VM and slot stay.
func transferred(m *v1alpha1.Machine, from, to *v1alpha1.MachineSet) *v1alpha1.Machine {
	m = m.DeepCopy()
	others := slices.DeleteFunc(m.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == from.UID || o.UID == to.UID })
	m.OwnerReferences = append([]metav1.OwnerReference{*metav1.NewControllerRef(to, v1alpha1.SchemeGroupVersion.WithKind("MachineSet"))},
		others...)
	m.Labels = exchange(m.Labels, machinefacts.TemplateLabels(&from.Spec.Template), machinefacts.TemplateLabels(&to.Spec.Template))
	m.Labels = exchange(m.Labels, from.Spec.Selector.MatchLabels, to.Spec.Selector.MatchLabels)
	m.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.UpdateResultSuccessful
	m.Annotations = exchange(m.Annotations, machinefacts.TemplateAnnotations(&from.Spec.Template),
		machinefacts.TemplateAnnotations(&to.Spec.Template))
	delete(m.Annotations, v1alpha1.AnnotationOrdinal) // it counts the machines that the other set has created
	m.Spec.Class = to.Spec.Template.Spec.Class
	return m
}

// exchange replaces the values of one template in have by those of another one.
func exchange(have, before, after map[string]string) map[string]string {
	changed := maps.Clone(have)
	if changed == nil {
		changed = map[string]string{}
	}
	for key := range before {
		delete(changed, key)
	}
	maps.Copy(changed, after)
	return changed
}

// isUnsettled reports whether machines have changed their set, or have left a set that creates none
// in their place, and a size may not include that.
func (s inPlaceUpdates) isUnsettled() bool {
	return slices.ContainsFunc(s.all(), func(t *tally) bool {
		return t.set.DeletionTimestamp == nil && (isClosed(t.set) && t.standing < t.size ||
			slices.ContainsFunc(s.w.Machines[t.set.UID], func(m *v1alpha1.Machine) bool { return m.DeletionTimestamp == nil && hasJustCome(m) }))
	})
}

// hasJustCome reports whether a machine has moved from another set, whose new one may not include
// it in its size yet.
func hasJustCome[T metav1.Object](m T) bool {
	return m.GetLabels()[v1alpha1.LabelUpdateResult] == v1alpha1.UpdateResultSuccessful
}

// settle adapts the sizes to the machines that have changed their set, by a live list: a set grows
// by those that have moved to it, as far as there are more than its size, and one that creates none
// in the place of those that have left is as large as what it has. The list of a set's machines is
// later than its size, so a size is never changed for the same machine twice; should the set have
// decided something meanwhile, the write is rejected.
//
//	old 3 of which 2 are there, new 1 of which 2 are there, one of them has come
//	  new 1 + min(1, 2 − 1) = 2; old 2
func (s inPlaceUpdates) settle() {
	for _, t := range s.all() {
		if t.set.DeletionTimestamp != nil {
			continue
		}
		live := s.w.Live.of(t.set)
		there, come := awaited(t, live), int32(0)
		for _, m := range live {
			if m.DeletionTimestamp != nil {
				continue
			}
			there++
			if hasJustCome(m) {
				come++
			}
		}
		switch {
		case there > t.size:
			t.size += min(come, there-t.size)
		case isClosed(t.set):
			t.size = there
		}
		t.recount()
	}
}

// arrived returns the machines that have moved to a set whose size includes them, without the label
// that marked them.
func (s inPlaceUpdates) arrived() (arrived []*v1alpha1.Machine) {
	for _, t := range s.all() {
		if !slices.ContainsFunc(s.w.Live.of(t.set), hasJustCome) {
			continue
		}
		for _, m := range machinefacts.OldestFirst(s.w.Machines[t.set.UID]) {
			isLive := func(live *metav1.ObjectMeta) bool { return live.UID == m.UID && hasJustCome(live) }
			if hasJustCome(m) && m.DeletionTimestamp == nil && slices.ContainsFunc(s.w.Live.of(t.set), isLive) {
				m = m.DeepCopy()
				delete(m.Labels, v1alpha1.LabelUpdateResult)
				arrived = append(arrived, m)
			}
		}
	}
	return arrived
}
