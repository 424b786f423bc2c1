package rollout

import (
	"maps"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/validation"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// Decide returns what to do next. It is total: every world has a verdict.
func Decide(w World) Verdict {
	d := w.Deployment
	if d.Labels[v1alpha1.LabelSlot] == "" {
		return Verdict{Do: Rest} // in no slot: no replica would process its sets, either
	}
	if d.DeletionTimestamp != nil {
		return decideDelete(w)
	}
	if v, decided := decideWithoutStrategy(w); decided {
		return v
	}
	if errs := validation.ValidateMachineDeployment(d); len(errs) > 0 {
		return invalid(w.Deployment, w.Now, validation.Reason(errs), errs.ToAggregate().Error())
	}
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return invalid(w.Deployment, w.Now, v1alpha1.ReasonInvalidSpec, "spec.selector: "+err.Error())
	}
	if len(w.Undecodable) > 0 {
		return untouched(w.Deployment, w.Now, v1alpha1.EventUndecodable,
			"The MachineDeployment is not reconciled: its MachineSet "+w.Undecodable[0].Name+
				" cannot be decoded. Correct the field that the Event "+v1alpha1.EventUndecodable+" on the MachineSet names")
	}
	if w.MustListOrphans {
		return Verdict{Do: ListSets}
	}
	if v, moved := adopt(w, selector); moved {
		return v
	}
	for _, set := range w.Owned {
		if _, err := machinefacts.ReadIntents(set); err != nil && set.DeletionTimestamp == nil {
			// Its machines cannot be counted.
			return invalid(w.Deployment, w.Now, v1alpha1.ReasonInvalidSpec, "MachineSet "+set.Name+": "+err.Error())
		}
	}
	if v, prepared := prepare(w); !prepared {
		return v
	}
	if v, decided := markNamed(w); decided {
		return v
	}
	if v, waits := awaitTarget(w); waits {
		return v
	}
	s := countSets(w)
	switch {
	case d.Spec.Paused:
	case d.Spec.RollbackTo != nil && !w.Confirmed && w.LiveSets == nil: // the revision before may be one that the cache does not show
		return Verdict{Do: ListSets}
	case d.Spec.RollbackTo != nil && w.LiveSets != nil && unseen(w.Owned, w.LiveSets):
		return awaitCache()
	case d.Spec.RollbackTo != nil:
		return rollBack(w)
	case s.newSet == nil:
		if v, creating := createNew(s); creating {
			return v
		}
	}
	return adjust(s)
}

// adopt adopts orphans that match, and releases sets that do not match any more.
func adopt(w World, selector labels.Selector) (Verdict, bool) {
	unfit := func(sets []*v1alpha1.MachineSet, matches bool) []*v1alpha1.MachineSet {
		return slices.DeleteFunc(slices.Clone(sets), func(s *v1alpha1.MachineSet) bool {
			return s.DeletionTimestamp != nil || w.Done.Moved[s.UID] || selector.Matches(labels.Set(s.Labels)) != matches
		})
	}
	if orphans := unfit(w.Orphans, true); len(orphans) > 0 && !w.Done.AdoptionRace.IsLost() {
		return Verdict{Do: Adopt, Sets: orphans}, true
	}
	if mismatched := unfit(w.Owned, false); len(mismatched) > 0 {
		return Verdict{Do: Release, Sets: mismatched}, true
	}
	return Verdict{}, false
}

// orphansDependents reports whether a set is being deleted without its machines: the garbage
// collector removes it from their owner references, and then this finalizer.
func orphansDependents(set *v1alpha1.MachineSet) bool {
	return set.DeletionTimestamp != nil && slices.Contains(set.Finalizers, metav1.FinalizerOrphanDependents)
}

// NewSet returns the new set among the sets of a deployment: the oldest that has its template; nil
// when there is none.
func NewSet(d *v1alpha1.MachineDeployment, owned []*v1alpha1.MachineSet) *v1alpha1.MachineSet {
	for _, set := range machinefacts.OldestFirst(owned) {
		if isOf(set, d) {
			return set
		}
	}
	return nil
}

// isOf reports whether a set has the template of a deployment and is not being deleted.
func isOf(set *v1alpha1.MachineSet, d *v1alpha1.MachineDeployment) bool {
	return set.DeletionTimestamp == nil && sameTemplate(&set.Spec.Template, &d.Spec.Template)
}

// sameTemplate reports whether a machine of one template need not be replaced by one of the other:
// the hash label is the fleet's, and Node template, machine configuration and kind of class are
// changed without a new machine.
func sameTemplate(a, b *v1alpha1.MachineTemplateSpec) bool {
	one, other := essence(a), essence(b)
	return machinefacts.Same(&one, &other)
}

func essence(t *v1alpha1.MachineTemplateSpec) v1alpha1.MachineTemplateSpec {
	e := *t
	if _, has := e.Labels[v1alpha1.LabelMachineTemplateHash]; has {
		e.Labels = maps.Clone(e.Labels)
		delete(e.Labels, v1alpha1.LabelMachineTemplateHash)
	}
	e.CreationTimestamp = metav1.Time{}
	e.Spec.NodeTemplateSpec = v1alpha1.NodeTemplateSpec{}
	e.Spec.MachineConfiguration = nil
	e.Spec.Class.Kind = ""
	return e
}

// draft returns a copy of a deployment with its own labels and annotations. It shares all else, so
// that it takes little time to copy, and to compare.
func draft(d *v1alpha1.MachineDeployment) *v1alpha1.MachineDeployment {
	c := *d
	c.Labels, c.Annotations = maps.Clone(d.Labels), maps.Clone(d.Annotations)
	return &c
}

// prepare writes to the deployment what it needs before it has a set: our finalizer, the revision,
// and how often the name of the new set was taken; and since when the autoscaler names machines.
// While the deployment is paused its template has no revision yet: the write of that begins the
// rollout.
func prepare(w World) (Verdict, bool) {
	d, v := draft(w.Deployment), Verdict{Do: Save}
	if !slices.Contains(d.Finalizers, v1alpha1.FinalizerName) {
		d.Finalizers = append(slices.Clone(d.Finalizers), v1alpha1.FinalizerName)
	}
	if newSet := NewSet(w.Deployment, w.Owned); !d.Spec.Paused && (newSet != nil || d.Spec.RollbackTo == nil) {
		next := strconv.FormatInt(newRevision(w.Owned, newSet), 10)
		if d.Annotations[v1alpha1.AnnotationRevision] != next && (newSet != nil || !beginsWithSet(d, w.Owned)) {
			v.Events = append(v.Events, started(next, newSet))
		}
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, v1alpha1.AnnotationRevision, next)
	}
	upgradeNamed(d, w.Now)
	if w.Done.Collided {
		count := int32(1)
		if d.Status.CollisionCount != nil {
			count += *d.Status.CollisionCount
		}
		d.Status.CollisionCount = &count
	}
	v.Deployment = d
	return v, machinefacts.Same(d, w.Deployment)
}

// newRevision is the revision of the new set: its own if that is the highest, else one more than
// the highest.
func newRevision(owned []*v1alpha1.MachineSet, newSet *v1alpha1.MachineSet) int64 {
	highest := int64(0)
	for _, set := range owned {
		if newSet == nil || set.UID != newSet.UID {
			highest = max(highest, machinefacts.Revision(set))
		}
	}
	if newSet != nil && machinefacts.Revision(newSet) > highest {
		return machinefacts.Revision(newSet)
	}
	return highest + 1
}

// ignoredFor is how long a deployment has existed, at the least, before it counts as ignored: a
// fleet that works processes a new one within seconds.
const ignoredFor = 5 * time.Minute

// decideWithoutStrategy does not reconcile a deployment that Machine Controller Manager has ignored
// because it names no strategy, and that has no sets. It has had no effect so far, and users who
// take over to the fleet do not expect machines of it. The next change of its spec is meant for the
// fleet. decided is false where the other rules decide.
func decideWithoutStrategy(w World) (v Verdict, decided bool) {
	d := w.Deployment
	if d.Spec.Strategy.Type != "" || d.Annotations[v1alpha1.AnnotationStrategy] != "" {
		return Verdict{}, false
	}
	// The fleet wrote it: Machine Controller Manager has no such condition.
	shown := machinefacts.MachineDeploymentCondition(&d.Status, v1alpha1.MachineDeploymentValid)
	switch {
	case shown != nil && shown.Reason == v1alpha1.ReasonNoStrategy && d.Status.ObservedGeneration == d.Generation:
		return Verdict{Do: Rest}, true
	case shown != nil, len(w.Owned) > 0, isFresh(d, w.Now):
		return recordStrategy(w)
	case w.LiveSets == nil:
		return Verdict{Do: ListSets}, true
	case len(w.LiveSets) > 0:
		return recordStrategy(w)
	}
	return untouched(d, w.Now, v1alpha1.ReasonNoStrategy,
		"The MachineDeployment names no strategy, has no MachineSets, and existed before the "+
			"fleet. It is not reconciled until its spec changes: "+
			`set a strategy, as in {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}, or delete it`), true
}

// isFresh reports whether the deployment was created a short while ago, and that no controller has
// written it.
func isFresh(d *v1alpha1.MachineDeployment, now time.Time) bool {
	return d.Status.ObservedGeneration == 0 && !slices.Contains(d.Finalizers, v1alpha1.FinalizerName) &&
		now.Sub(d.CreationTimestamp.Time) < ignoredFor
}

// recordStrategy records on a deployment without a strategy that the fleet reconciles it:
// everything else that is written before it has a set may be Machine Controller Manager's. Whether
// it is invalid is reported elsewhere.
func recordStrategy(w World) (v Verdict, decided bool) {
	if len(validation.ValidateMachineDeployment(w.Deployment)) > 0 {
		return Verdict{}, false
	}
	v, _ = prepare(w) // in the same write
	metav1.SetMetaDataAnnotation(&v.Deployment.ObjectMeta, v1alpha1.AnnotationStrategy,
		string(v1alpha1.RollingUpdateMachineDeploymentStrategyType))
	return v, true
}

// decideDelete deletes all sets, and removes the finalizer when a live list shows none. Sets that
// have to stay are released. The garbage collector releases them, too, but not those that it does
// not know yet after its start, or after the definition of MachineSets was installed: those it
// would delete, as dependents of a deployment that is gone.
func decideDelete(w World) Verdict {
	if !slices.Contains(w.Deployment.Finalizers, v1alpha1.FinalizerName) {
		return Verdict{Do: Rest}
	}
	standing := slices.DeleteFunc(slices.Concat(w.Owned, w.Undecodable), func(s *v1alpha1.MachineSet) bool {
		return s.DeletionTimestamp != nil
	})
	remaining := slices.DeleteFunc(slices.Clone(standing), func(s *v1alpha1.MachineSet) bool {
		return w.Done.Deleted[s.UID] || w.Done.Moved[s.UID]
	})
	d := w.Deployment.DeepCopy()
	switch orphans := slices.Contains(d.Finalizers, metav1.FinalizerOrphanDependents); {
	case orphans && len(remaining) > 0:
		return Verdict{Do: Release, Sets: remaining}
	case orphans && len(standing) > 0:
		return awaitCache()
	case orphans:
		return removeFinalizer(w.Deployment)
	case len(remaining) > 0:
		return Verdict{Do: Delete, Sets: remaining}
	case len(w.Owned) > 0:
		d.Status = status(countSets(w))
		return Verdict{Do: Rest, Deployment: d}
	case w.LiveSets == nil:
		return Verdict{Do: ListSets}
	case len(w.LiveSets) > 0:
		return awaitCache()
	}
	return removeFinalizer(w.Deployment)
}

// removeFinalizer removes our finalizer.
func removeFinalizer(d *v1alpha1.MachineDeployment) Verdict {
	d = d.DeepCopy()
	d.Finalizers = slices.DeleteFunc(d.Finalizers, func(f string) bool { return f == v1alpha1.FinalizerName })
	return Verdict{Do: Rest, Deployment: d}
}

// invalid reports what is wrong with the deployment, and changes nothing else.
func invalid(d *v1alpha1.MachineDeployment, now time.Time, reason, problem string) Verdict {
	return untouched(d, now, reason, "The MachineDeployment is invalid and not reconciled until it is corrected: "+problem)
}

// untouched reports why the deployment is not reconciled.
func untouched(observed *v1alpha1.MachineDeployment, now time.Time, reason, message string) Verdict {
	d := observed.DeepCopy()
	d.Status.ObservedGeneration = d.Generation
	machinefacts.SetConditionOfDeployment(&d.Status, v1alpha1.MachineDeploymentValid, machinefacts.False(reason, message), now)
	before, is := machinefacts.ConditionOfDeployment(&observed.Status,
		v1alpha1.MachineDeploymentValid), machinefacts.ConditionOfDeployment(&d.Status, v1alpha1.MachineDeploymentValid)
	v := Verdict{Do: Rest, Deployment: d}
	if before != is {
		v.Events = []Event{{Reason: validation.EventReason(reason), Message: message}}
	}
	return v
}

// awaitsTarget reports whether the target cluster cannot be used, so that Nodes are not known.
func (w *World) awaitsTarget() bool { return w.TargetProblem != "" || w.TargetPending }

// awaitTarget reports that a deployment whose machines are updated in place is not reconciled,
// because its Nodes are not known. Otherwise machines are created and deleted, and each waits.
func awaitTarget(w World) (v Verdict, waits bool) {
	if !w.awaitsTarget() || !IsInPlace(w.Deployment) {
		return Verdict{}, false
	}
	before := machinefacts.ConditionOfDeployment(&w.Deployment.Status, v1alpha1.MachineDeploymentValid)
	v = Verdict{Do: Rest}
	if is, waits := machinefacts.AwaitsTarget(before, w.TargetProblem, w.TargetPending); waits {
		if v = untouched(w.Deployment, w.Now, is.Reason, is.Message); is.Reason == before.Reason {
			v.Events = nil // the next error of a connection
		}
	}
	v.Wake = machinefacts.TargetRecheck
	return v, true
}
