package scale

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// Waits returns what a set waits for when a pass rests with a verdict, one of few texts; "" if for
// nothing. What its machines wait for is in their traces.
func Waits(w World, v Verdict) string {
	set := w.Set
	if v.Set != nil {
		set = v.Set
	}
	standing := slices.DeleteFunc(slices.Clone(w.Owned), func(m *v1alpha1.Machine) bool { return m.DeletionTimestamp != nil })
	excess := len(standing) - int(set.Spec.Replicas)
	valid := machinefacts.MachineSetCondition(&set.Status, v1alpha1.MachineSetValid)
	isHeld := func(m *v1alpha1.Machine) bool {
		return holds(w, m) && (excess > 0 || set.DeletionTimestamp != nil || isToBeReplaced(w, m))
	}
	delayed := losses(w)
	switch {
	case w.Done.CreateError != "" || w.Done.DeleteError != "":
		return "the next request to an API server after a failure"
	case slices.ContainsFunc(standing, isHeld):
		return "the end of a hold of deletions"
	case set.DeletionTimestamp != nil && len(w.Owned) > 0:
		return "machines to be gone"
	case set.DeletionTimestamp != nil:
		return ""
	case valid != nil && valid.Status == corev1.ConditionFalse && valid.Reason != v1alpha1.ReasonInvalidClass &&
		valid.Reason != v1alpha1.ReasonTargetUnavailable:
		// With these it does what it can.
		return "a correction by a user"
	case w.Live != nil && !sees(w):
		return "caches that are late"
	case excess < 0 && machinefacts.CreatesNone(set):
		return "the end of a freeze"
	case excess < 0 && delayed != nil && delayed.Wait(set.Generation, w.Now) > 0:
		return "the end of a delay of creations"
	}
	return ""
}
