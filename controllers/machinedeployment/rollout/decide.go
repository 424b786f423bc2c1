package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/validation"
)

// Decide says what to do next. It is total: every world has a verdict.
func Decide(w World) Verdict {
	d := w.Deployment
	if d.Labels[v1alpha1.LabelSlot] == "" {
		return Verdict{Do: Rest} // in no slot, and so nobody's: its sets would be nobody's either
	}
	if d.DeletionTimestamp != nil {
		return decideDelete(w)
	}
	if errs := validation.ValidateMachineDeployment(d); len(errs) > 0 {
		return invalid(w, validation.Reason(errs), errs.ToAggregate().Error())
	}
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return invalid(w, v1alpha1.ReasonInvalidSpec, "spec.selector: "+err.Error())
	}
	if w.MustLook {
		return Verdict{Do: ListLive}
	}
	if v, moved := claim(w, selector); moved {
		return v
	}
	newSet := findNew(w)
	if v, prepared := prepare(w, newSet); !prepared {
		return v
	}
	if newSet == nil && slices.ContainsFunc(w.Owned, leavesOrphans) {
		return Verdict{Do: Rest} // the next set is to adopt the machines, and not to make others beside them
	}
	if newSet == nil {
		return createNew(w)
	}
	if v, changed := resize(w, newSet); changed {
		return v
	}
	return finish(w, newSet)
}

// claim adopts orphans that match, and releases sets that do not match any more.
func claim(w World, selector labels.Selector) (Verdict, bool) {
	unfit := func(sets []*v1alpha1.MachineSet, matches bool) []*v1alpha1.MachineSet {
		return slices.DeleteFunc(slices.Clone(sets), func(s *v1alpha1.MachineSet) bool {
			return s.DeletionTimestamp != nil || w.Done.Moved[s.UID] || selector.Matches(labels.Set(s.Labels)) != matches
		})
	}
	if orphans := unfit(w.Orphans, true); len(orphans) > 0 {
		return Verdict{Do: Adopt, Sets: orphans}, true
	}
	if strangers := unfit(w.Owned, false); len(strangers) > 0 {
		return Verdict{Do: Release, Sets: strangers}, true
	}
	return Verdict{}, false
}

// leavesOrphans says that a set is being deleted without its machines: the garbage collector takes them from it, and then
// this finalizer off.
func leavesOrphans(set *v1alpha1.MachineSet) bool {
	return set.DeletionTimestamp != nil && slices.Contains(set.Finalizers, metav1.FinalizerOrphanDependents)
}

// findNew returns the set that has the deployment's template; the oldest, should there be several.
func findNew(w World) *v1alpha1.MachineSet {
	for _, set := range oldestFirst(w.Owned) {
		if set.DeletionTimestamp == nil && sameTemplate(&set.Spec.Template, &w.Deployment.Spec.Template) {
			return set
		}
	}
	return nil
}

func oldestFirst(sets []*v1alpha1.MachineSet) []*v1alpha1.MachineSet {
	sorted := slices.Clone(sets)
	slices.SortFunc(sorted, func(a, b *v1alpha1.MachineSet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return sorted
}

// sameTemplate says that a machine made from one template is as good as one made from the other: the hash label is ours,
// and Node template, machine configuration and kind of class are kept in step without a new machine.
func sameTemplate(a, b *v1alpha1.MachineTemplateSpec) bool {
	return apiequality.Semantic.DeepEqual(essence(a), essence(b))
}

func essence(t *v1alpha1.MachineTemplateSpec) *v1alpha1.MachineTemplateSpec {
	e := t.DeepCopy()
	delete(e.Labels, v1alpha1.LabelMachineTemplateHash)
	e.CreationTimestamp = metav1.Time{}
	e.Spec.NodeTemplateSpec = v1alpha1.NodeTemplateSpec{}
	e.Spec.MachineConfiguration = nil
	e.Spec.Class.Kind = ""
	return e
}

// prepare writes on the deployment what has to be there before it has a set: our finalizer and the revision.
func prepare(w World, newSet *v1alpha1.MachineSet) (Verdict, bool) {
	d := w.Deployment.DeepCopy()
	if !slices.Contains(d.Finalizers, v1alpha1.FinalizerName) {
		d.Finalizers = append(d.Finalizers, v1alpha1.FinalizerName)
	}
	if d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	d.Annotations[v1alpha1.AnnotationRevision] = strconv.FormatInt(newRevision(w, newSet), 10)
	if w.Done.Collided {
		count := int32(1)
		if d.Status.CollisionCount != nil {
			count += *d.Status.CollisionCount
		}
		d.Status.CollisionCount = &count
	}
	return Verdict{Do: Save, Deployment: d}, apiequality.Semantic.DeepEqual(d, w.Deployment)
}

// newRevision is the revision of the new set: its own if that is the highest, else one more than the highest.
func newRevision(w World, newSet *v1alpha1.MachineSet) int64 {
	highest := int64(0)
	for _, set := range w.Owned {
		if newSet == nil || set.UID != newSet.UID {
			highest = max(highest, revision(set))
		}
	}
	if newSet != nil && revision(newSet) > highest {
		return revision(newSet)
	}
	return highest + 1
}

func revision(set *v1alpha1.MachineSet) int64 {
	n, err := strconv.ParseInt(set.Annotations[v1alpha1.AnnotationRevision], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// createNew makes the new set, after the API server has confirmed that the cache misses none.
func createNew(w World) Verdict {
	switch {
	case w.Done.CreateError != "":
		return finish(w, nil)
	case w.Live == nil:
		return Verdict{Do: ListLive}
	case unseen(w):
		return Verdict{Do: Rest} // the cache will show it, and wake us
	}
	set := makeSet(w)
	set.Spec.Replicas = targets(w, set)[set.UID]
	events := []Event{}
	if set.Spec.Replicas > 0 {
		events = append(events, scaled(set, 0))
	}
	return Verdict{Do: Create, Sets: []*v1alpha1.MachineSet{set}, Events: events}
}

func unseen(w World) bool {
	for uid := range w.Live {
		if !slices.ContainsFunc(w.Owned, func(s *v1alpha1.MachineSet) bool { return s.UID == uid }) {
			return true
		}
	}
	return false
}

// targets works out the size of each set, by UID; the new set may not exist yet and then has the UID "". The replicas
// that are wanted go to the sets that have some: without rollouts nobody moves them. Only when no set has any does the
// new one get them.
//
// With 5 wanted and an old set of 3 beside a new one of 0, the old one gets 5. With 2 wanted it gets 2.
func targets(w World, newSet *v1alpha1.MachineSet) map[types.UID]int32 {
	size := map[types.UID]int32{newSet.UID: newSet.Spec.Replicas}
	var active []*v1alpha1.MachineSet // newest first
	sum := int32(0)
	for _, set := range oldestFirst(w.Owned) {
		size[set.UID] = set.Spec.Replicas
		if set.DeletionTimestamp == nil && set.Spec.Replicas > 0 {
			active = append([]*v1alpha1.MachineSet{set}, active...)
			sum += set.Spec.Replicas
		}
	}
	if len(active) == 0 {
		size[newSet.UID] = w.Deployment.Spec.Replicas
		return size
	}
	diff := w.Deployment.Spec.Replicas - sum
	for _, set := range active {
		change := max(diff, -set.Spec.Replicas)
		size[set.UID] += change
		diff -= change
	}
	return size
}

// resize brings all sets to their sizes, and the new set to what the deployment says beyond the template.
func resize(w World, newSet *v1alpha1.MachineSet) (Verdict, bool) {
	size := targets(w, newSet)
	grows := slices.ContainsFunc(w.Owned, func(s *v1alpha1.MachineSet) bool { return size[s.UID] > s.Spec.Replicas })
	switch { // a set that the cache does not show has machines that count
	case grows && w.Live == nil:
		return Verdict{Do: ListLive}, true
	case grows && unseen(w):
		return Verdict{Do: Rest}, true // the cache will show it, and wake us
	}
	v := Verdict{Do: Update}
	for _, set := range oldestFirst(w.Owned) {
		if set.DeletionTimestamp != nil {
			continue
		}
		wanted := set.DeepCopy()
		wanted.Spec.Replicas = size[set.UID]
		if set.UID == newSet.UID {
			syncNew(w, wanted)
		}
		if wanted.Spec.Replicas > 0 {
			noteScale(w, wanted)
		}
		if apiequality.Semantic.DeepEqual(set, wanted) {
			continue
		}
		v.Sets = append(v.Sets, wanted)
		if set.Spec.Replicas != wanted.Spec.Replicas {
			v.Events = append(v.Events, scaled(wanted, set.Spec.Replicas))
		}
	}
	return v, len(v.Sets) > 0
}

func scaled(set *v1alpha1.MachineSet, from int32) Event {
	direction := "up"
	if set.Spec.Replicas < from {
		direction = "down"
	}
	return Event{
		Reason:  v1alpha1.EventScalingMachineSet,
		Message: fmt.Sprintf("Scaled %s machine set %s to %d", direction, set.Name, set.Spec.Replicas),
	}
}

// decideDelete deletes all sets, and lets the deployment go when a live list shows none.
func decideDelete(w World) Verdict {
	if !slices.Contains(w.Deployment.Finalizers, v1alpha1.FinalizerName) {
		return Verdict{Do: Rest}
	}
	if slices.Contains(w.Deployment.Finalizers, metav1.FinalizerOrphanDependents) {
		return letGo(w) // its sets are to stay: the garbage collector takes them from it before it goes
	}
	left := slices.DeleteFunc(slices.Clone(w.Owned), func(s *v1alpha1.MachineSet) bool {
		return s.DeletionTimestamp != nil || w.Done.Deleted[s.UID]
	})
	d := w.Deployment.DeepCopy()
	switch {
	case len(left) > 0:
		return Verdict{Do: Delete, Sets: left}
	case len(w.Owned) > 0:
		d.Status = status(w, findNew(w))
		return Verdict{Do: Rest, Deployment: d}
	case w.Live == nil:
		return Verdict{Do: ListLive}
	case len(w.Live) > 0:
		return Verdict{Do: Rest} // the cache will show them, and wake us
	}
	return letGo(w)
}

// letGo takes our finalizer off.
func letGo(w World) Verdict {
	d := w.Deployment.DeepCopy()
	d.Finalizers = slices.DeleteFunc(d.Finalizers, func(f string) bool { return f == v1alpha1.FinalizerName })
	return Verdict{Do: Rest, Deployment: d}
}

// invalid says what is wrong with the deployment, and touches nothing else.
func invalid(w World, reason, problem string) Verdict {
	d := w.Deployment.DeepCopy()
	d.Status.ObservedGeneration = d.Generation
	message := "The MachineDeployment is not acted on until it is corrected: " + problem
	changed := setCondition(w, &d.Status, v1alpha1.MachineDeploymentCondition{
		Type: v1alpha1.MachineDeploymentValid, Status: corev1.ConditionFalse, Reason: reason, Message: message,
	})
	v := Verdict{Do: Rest, Deployment: d}
	if changed {
		event := Event{Reason: reason, Message: message}
		if reason == v1alpha1.ReasonSelectorMatchesEverything {
			event.Reason = v1alpha1.EventSelectingAll
		}
		v.Events = []Event{event}
	}
	return v
}
