package machinefacts

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Available reports whether a machine has been available for as long as it has to be, which is 0
// where minReadySeconds does not count; and if nothing but time is missing, how much of it.
func Available(m *v1alpha1.Machine, minReady time.Duration, now time.Time) (available bool, in time.Duration) {
	is := m.Status.CurrentStatus
	if m.DeletionTimestamp != nil || is.Phase != v1alpha1.MachineRunning && is.Phase != v1alpha1.MachineAvailable {
		return false, 0
	}
	if minReady > 0 {
		in = max(is.LastUpdateTime.Add(minReady).Sub(now), 0)
	}
	return in == 0, in
}

// MinReady returns for how long the machines of a set have to be available, if that counts.
func MinReady(set *v1alpha1.MachineSet, counts bool) time.Duration {
	if !counts {
		return 0
	}
	return time.Duration(set.Spec.MinReadySeconds) * time.Second
}

// LateCache is how long a cache may take to show an object that the API server has. An object that
// it does not show by then was deleted before, or is in another slot, and no event has to follow:
// the API server is read again.
const LateCache = 30 * time.Second

// Sooner returns the shorter of two waits; a wait of 0 has no end.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// CompareAge orders objects, the oldest first, and those that were created at the same time by
// name.
func CompareAge[T metav1.Object](a, b T) int {
	x, y := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	return cmp.Or(x.Compare(y.Time), cmp.Compare(a.GetName(), b.GetName()))
}

// OldestFirst returns the objects, the oldest first.
func OldestFirst[T metav1.Object](objects []T) []T {
	return slices.SortedFunc(slices.Values(objects), CompareAge[T])
}

// TimeIn returns the time in an annotation, and its text; zero and "" if there is none that is
// valid.
func TimeIn(o metav1.Object, annotation string) (at time.Time, text string) {
	if text = o.GetAnnotations()[annotation]; text == "" {
		return time.Time{}, ""
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, ""
	}
	return at, text
}

// HasFailed reports whether the machine is in the phase Failed.
func HasFailed(m *v1alpha1.Machine) bool {
	return m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed
}

// IsUnhealthy reports whether the machine has run and waits to recover, or to be replaced: its Node
// is unhealthy, or could not be updated in place.
func IsUnhealthy(m *v1alpha1.Machine) bool {
	phase := m.Status.CurrentStatus.Phase
	return phase == v1alpha1.MachineUnknown || phase == v1alpha1.MachineInPlaceUpdateFailed
}

// HasFailedHealth reports whether the machine has failed and was a healthy Node before.
func HasFailedHealth(m *v1alpha1.Machine) bool {
	return HasFailed(m) && m.Status.LastOperation.Type != v1alpha1.MachineOperationCreate
}

// NeverRan reports whether the machine has never been a healthy Node, so that no pod can have run
// on it: it has no VM yet, its VM could not be created, or it did not join within the creation
// timeout. One whose VM exists and may be about to join does not count.
func NeverRan(m *v1alpha1.Machine) bool {
	switch m.Status.CurrentStatus.Phase { //nolint:exhaustive // in all other phases it may have run
	case "":
		return m.Spec.ProviderID == ""
	case v1alpha1.MachineCrashLoopBackOff:
		return true
	}
	return HasFailed(m) && !HasFailedHealth(m)
}

// IsReady reports whether the machine counts for readyReplicas: it runs and is not being deleted.
func IsReady(m *v1alpha1.Machine) bool {
	return m.DeletionTimestamp == nil && m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning
}

// IsPreserved reports whether the machine is preserved: its expiry time is in the future, and it is
// not being deleted.
func IsPreserved(m *v1alpha1.Machine, now time.Time) bool {
	expiry := m.Status.CurrentStatus.PreserveExpiryTime
	return m.DeletionTimestamp == nil && expiry != nil && expiry.After(now)
}

// IsPreservedFailed reports whether the machine counts for preservedFailedReplicas: it has failed
// and is preserved.
func IsPreservedFailed(m *v1alpha1.Machine, now time.Time) bool {
	return HasFailed(m) && IsPreserved(m, now)
}

// IsPreservationOver reports whether the expiry time of the machine has passed. A machine that
// stays failed keeps the time, so that its preservation does not begin again.
func IsPreservationOver(m *v1alpha1.Machine, now time.Time) bool {
	expiry := m.Status.CurrentStatus.PreserveExpiryTime
	return expiry != nil && !expiry.After(now)
}

// IsKept reports whether the machine must not be replaced although it has failed: it is preserved,
// or its preservation is requested and has not begun. After its expiry time no request counts.
func IsKept(m *v1alpha1.Machine, now time.Time) bool {
	if expiry := m.Status.CurrentStatus.PreserveExpiryTime; expiry != nil {
		return expiry.After(now)
	}
	switch PreserveValue(m) {
	case v1alpha1.PreserveNow, v1alpha1.PreserveWhenFailed, v1alpha1.PreserveAuto:
		return true
	}
	return false
}

// PreserveValue returns the value of the annotation preserve that applies to the machine; ""
// without one. The value of its Node, as it is recorded on the machine, has precedence over the
// machine's own.
func PreserveValue(m *v1alpha1.Machine) string {
	return cmp.Or(m.Annotations[v1alpha1.AnnotationLastAppliedNodePreserveValue], m.Annotations[v1alpha1.AnnotationPreserve])
}

// PreservationEnds returns when, from now, the preservation of the first of the failed machines
// ends; 0 when none is preserved. Nothing is written at that time, so that a controller that counts
// preserved machines has to count them again then.
func PreservationEnds(machines []*v1alpha1.Machine, now time.Time) (next time.Duration) {
	for _, m := range machines {
		if IsPreservedFailed(m, now) {
			next = Sooner(next, m.Status.CurrentStatus.PreserveExpiryTime.Sub(now))
		}
	}
	return next
}

// CreationTimeout returns how long the machine may take to become a healthy Node. The machine's
// annotation has precedence over its spec, and its spec over the fleet's timeout.
func CreationTimeout(m *v1alpha1.Machine, timeout time.Duration) time.Duration {
	if d, err := time.ParseDuration(m.Annotations[v1alpha1.AnnotationEffectiveCreationTimeout]); err == nil {
		return d
	}
	if c := m.Spec.MachineConfiguration; c != nil && c.MachineCreationTimeout != nil {
		return c.MachineCreationTimeout.Duration
	}
	return timeout
}

// CreationDeadline returns the time at which a machine has failed if it is not a healthy Node.
func CreationDeadline(m *v1alpha1.Machine, timeout time.Duration) time.Time {
	return m.CreationTimestamp.Add(CreationTimeout(m, timeout))
}

// HealthDeadline returns the time at which an unhealthy machine has been so for too long. The
// machine's own timeout has precedence over the fleet's. ok is false if it is not unhealthy, or if
// its health has no timeout.
func HealthDeadline(m *v1alpha1.Machine, timeout time.Duration) (deadline time.Time, ok bool) {
	if !IsUnhealthy(m) || HasNoHealthTimeout(m) {
		return time.Time{}, false
	}
	if c := m.Spec.MachineConfiguration; c != nil && c.MachineHealthTimeout != nil {
		timeout = c.MachineHealthTimeout.Duration
	}
	return m.Status.CurrentStatus.LastUpdateTime.Add(timeout), true
}

// HasNoHealthTimeout reports whether the machine may be unhealthy without a limit of time.
func HasNoHealthTimeout(m *v1alpha1.Machine) bool {
	c := m.Spec.MachineConfiguration
	return c != nil && c.DisableHealthTimeout != nil && *c.DisableHealthTimeout
}

// InPlaceUpdateTimeout returns how long an update in place of the machine, and then the return of
// its Node, may each take. The machine's own timeout has precedence over the fleet's.
func InPlaceUpdateTimeout(m *v1alpha1.Machine, timeout time.Duration) time.Duration {
	if c := m.Spec.MachineConfiguration; c != nil && c.MachineInPlaceUpdateTimeout != nil {
		return c.MachineInPlaceUpdateTimeout.Duration
	}
	return timeout
}

// InPlaceUpdateDeadline returns until when the update in place that the machine is in, or the
// return of its Node, may take.
func InPlaceUpdateDeadline(m *v1alpha1.Machine, timeout time.Duration) time.Time {
	return m.Status.CurrentStatus.LastUpdateTime.Add(InPlaceUpdateTimeout(m, timeout))
}

// PreserveTimeout returns for how long the machine is preserved. The machine's own timeout has
// precedence over the fleet's.
func PreserveTimeout(m *v1alpha1.Machine, timeout time.Duration) time.Duration {
	if c := m.Spec.MachineConfiguration; c != nil && c.MachinePreserveTimeout != nil {
		return c.MachinePreserveTimeout.Duration
	}
	return timeout
}
