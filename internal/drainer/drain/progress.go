package drain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
)

// named is how many objects of a kind are named; the rest is counted.
const named = 3

// Progress is the progress of a drain, for messages.
type Progress struct {
	// IsUnknown reports whether facts are missing, so that nothing is known of the pods.
	IsUnknown bool
	// Blind is why facts are missing; "" while none are, or not for long.
	Blind string
	Node  string
	// Left is how many pods have to leave, including those that are ending or waiting.
	Left int
	// Ending pods were evicted or deleted, and still exist.
	Ending int
	// Late pods are those of them whose grace period ended some time ago.
	Late []string
	// Slow pods are those of them with a long grace period that is not over, and SlowUntil is the end
	// of the last one.
	Slow      []string
	SlowUntil time.Time
	// Waiting pods, or volumes of which all pods have left, wait until others have moved.
	Waiting []string
	// Detaching volumes are used by no pod any more.
	Detaching []string
	// Blocked pods could not be removed.
	Blocked []Blocked
	// Deadline is when the remaining pods are deleted without grace if nothing changes, and Next is
	// why.
	Deadline time.Time
	Next     Cause
	// Cause of the force, if the drain is forced.
	Cause Cause
	// Forced are the pods that were deleted without grace.
	Forced Forced
}

// Forced are pods that a drain has deleted without grace, as far as this process knows. The zero
// value is none.
type Forced struct {
	names []string // of the first of them
	count int
}

// With returns the pods with one more.
func (f Forced) With(pod *corev1.Pod) Forced {
	if f.count++; f.count <= named {
		f.names = append(slices.Clip(f.names), podKey(pod).String())
	}
	return f
}

// IsNone reports whether there are none.
func (f Forced) IsNone() bool { return f.count == 0 }

// String names some of the pods.
func (f Forced) String() string { return listOf(f.names, f.count) }

// Blocked is a pod that could not be removed.
type Blocked struct {
	Pod types.NamespacedName
	// Budgets that do not allow its eviction, by namespace and name.
	Budgets []string
	// IsMisconfigured reports whether one of them never will: all of its pods are healthy.
	IsMisconfigured bool
	// IsUncounted reports whether one of them never will, because the pod has no controller.
	IsUncounted bool
	// IsUnevictable reports whether the eviction API cannot evict it, because it has several budgets.
	IsUnevictable bool
	// Why is the refusal of the API server, if no known budget is the reason.
	Why string
	// Until is when the pod is deleted without grace although it may not be evicted; zero while it has
	// not been refused.
	Until time.Time
}

// isStuck reports whether the pod stays unless a user changes something, or the drain is forced.
func (b Blocked) isStuck() bool { return b.IsMisconfigured || b.IsUncounted || b.IsUnevictable }

// addUnevictable returns the progress with one more pod that the eviction API cannot evict.
func addUnevictable(p Progress, pod *corev1.Pod, guards []*policyv1.PodDisruptionBudget) Progress {
	p = addBlocked(p, pod, guards, "")
	p.Blocked[len(p.Blocked)-1].IsUnevictable = true
	return p
}

// addBlocked returns the progress with one more pod that could not be removed.
func addBlocked(p Progress, pod *corev1.Pod, by []*policyv1.PodDisruptionBudget, why string) Progress {
	one := Blocked{Pod: podKey(pod), Why: why}
	for _, b := range by {
		one.Budgets = append(one.Budgets, b.Namespace+"/"+b.Name)
		one.IsMisconfigured = one.IsMisconfigured || isMisconfigured(b)
		one.IsUncounted = one.IsUncounted || isUncounted(pod, b)
	}
	p.Blocked = append(p.Blocked, one)
	return p
}

// IsStuck reports whether a user has to change something, or the drain will be forced.
func (p Progress) IsStuck() bool {
	if p.Blind != "" {
		return true
	}
	return slices.ContainsFunc(p.Blocked, Blocked.isStuck)
}

// String returns the progress as a sentence that is the same while nothing changes.
func (p Progress) String() string {
	blind := "what it depends on cannot be watched: " + p.Blind
	switch {
	case p.IsUnknown && p.Blind == "":
		return ""
	case p.IsUnknown:
		return p.until([]string{fmt.Sprintf(reportBegin+"%s: %s", p.Node, blind)})
	}
	parts := []string{fmt.Sprintf(reportBegin+"%s: %s left", p.Node, count(p.Left, "pod"))}
	if p.Ending > 0 {
		parts[0] += fmt.Sprintf(", %d ending", p.Ending)
	}
	if n := len(p.Waiting); n > 0 {
		parts[0] += fmt.Sprintf(", %d waiting until other volumes have moved (%s)", n, list(slices.Sorted(slices.Values(p.Waiting))))
	}
	parts = append(parts, p.blockedBy()...)
	if len(p.Slow) > 0 {
		parts = append(parts,
			list(slices.Sorted(slices.Values(p.Slow)))+" may take until "+written(p.SlowUntil)+" to end (terminationGracePeriodSeconds)")
	}
	if len(p.Late) > 0 {
		parts = append(parts, list(slices.Sorted(slices.Values(p.Late)))+" not ended within the grace period")
	}
	if n := len(p.Detaching); n > 0 {
		parts = append(parts, fmt.Sprintf("%s detaching (%s)", count(n, "volume"), list(slices.Sorted(slices.Values(p.Detaching)))))
	}
	if p.Blind != "" {
		parts = append(parts, blind)
	}
	return p.until(parts)
}

// until completes the sentence with what follows without a change.
func (p Progress) until(parts []string) string {
	if p.Cause != "" {
		return strings.Join(append(parts, "no grace is given: "+p.Cause.String()), "; ")
	}
	if early := p.deletedEarly(); early != "" {
		parts = append(parts, early)
	}
	last := "what is left at " + written(p.Deadline) + " is deleted without grace"
	if p.Next != CauseTimeout {
		last += ": by then " + p.Next.String()
	}
	return strings.Join(append(parts, last), "; ")
}

// deletedEarly returns which pods are deleted before the deadline, because their evictions have
// been tried for long enough by then.
func (p Progress) deletedEarly() string {
	var at time.Time
	var pods []string
	for _, h := range slices.SortedStableFunc(slices.Values(p.Blocked), func(a, b Blocked) int { return a.Until.Compare(b.Until) }) {
		if !h.Until.IsZero() && h.Until.Before(p.Deadline) {
			at = earliest(at, h.Until)
			pods = append(pods, h.Pod.String())
		}
	}
	switch len(pods) {
	case 0:
		return ""
	case 1:
		return pods[0] + " is deleted without grace at " + written(at) + " if it cannot be evicted by then (maxEvictRetries)"
	}
	return list(pods) + " are deleted without grace from " + written(at) + " on if they cannot be evicted by then (maxEvictRetries)"
}

// written returns a time as it is written in messages.
func written(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// blockedBy returns what blocks the pods, grouped by reason: first the reasons that a user has to
// remove.
func (p Progress) blockedBy() []string {
	var causes []string
	pods := map[string][]string{}
	for _, h := range slices.SortedStableFunc(slices.Values(p.Blocked), stuckFirst) {
		cause := h.cause()
		if len(pods[cause]) == 0 {
			causes = append(causes, cause)
		}
		pods[cause] = append(pods[cause], h.Pod.String())
	}
	var parts []string
	for i, cause := range causes {
		if i == named {
			return append(parts, fmt.Sprintf("others are held for %s more", count(len(causes)-named, "reason")))
		}
		parts = append(parts, list(pods[cause])+" "+cause)
	}
	return parts
}

func stuckFirst(a, b Blocked) int {
	switch {
	case a.isStuck() == b.isStuck():
		return 0
	case a.isStuck():
		return -1
	}
	return 1
}

// cause returns what blocks the pod.
func (b Blocked) cause() string {
	kind := "PodDisruptionBudget "
	if len(b.Budgets) > 1 {
		kind = "PodDisruptionBudgets "
	}
	switch {
	case b.IsUnevictable:
		return "held by " + kind + list(b.Budgets) + ": the eviction API evicts no pod that several select; have one of them select it"
	case b.IsMisconfigured:
		return "held by " + kind + list(b.Budgets) + ", although all pods there are healthy: change what it allows"
	case b.IsUncounted:
		return "held by " + kind + list(b.Budgets) +
			", which never allows the eviction of a pod without a controller: give it minAvailable as a number, or delete it"
	case len(b.Budgets) > 0:
		return "held by " + kind + list(b.Budgets)
	case b.Why != "":
		return "not removed: " + b.Why
	}
	return "tried again soon"
}

// list joins the first of the names.
func list(names []string) string { return listOf(names, len(names)) }

// listOf joins the first names of so many.
func listOf(names []string, count int) string {
	if count > named {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:named], ", "), count-named)
	}
	return strings.Join(names, " and ")
}

// String returns the cause as text.
func (c Cause) String() string {
	switch c {
	case CauseOrder:
		return "the machine has the label force-deletion"
	case CauseTimeout:
		return "the time for the drain is over"
	case CauseNotReady:
		return "the Node has not been ready for " + unhealthyTime.String()
	case CauseReadonly:
		return "the Node's file system has been read only for " + unhealthyTime.String()
	case CauseVolumes:
		return "volumes were not detached in time"
	}
	return ""
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
