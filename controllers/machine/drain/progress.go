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

// named is how many of a kind are named; the rest is counted.
const named = 3

// Progress is how far a drain is, for people.
type Progress struct {
	// IsUnknown says that not everything was seen yet, and that nothing can be told of the pods.
	IsUnknown bool
	// Blind says why not everything can be seen; "" while it can, or that has not lasted long.
	Blind string
	Node  string
	// Left is how many pods have to leave, those included that are ending or waiting.
	Left int
	// Ending pods were asked to end.
	Ending int
	// Late pods are those of them whose grace was over some time ago.
	Late []string
	// Waiting pods, or volumes of which all pods have left, wait until others have moved.
	Waiting []string
	// Detaching volumes are used by no pod any more.
	Detaching []string
	// Held pods could not be removed.
	Held []Blocked
	// Deadline is when what is left is deleted without grace.
	Deadline time.Time
	// Cause of the force, if the drain is forced.
	Cause Cause
}

// Blocked is a pod that could not be removed.
type Blocked struct {
	Pod types.NamespacedName
	// Budgets that do not let it go, by namespace and name.
	Budgets []string
	// IsMisconfigured says that one of them never will: all of its pods are healthy.
	IsMisconfigured bool
	// Why the API server refused, where it was no budget that is known.
	Why string
}

// hold returns the progress with one more pod that could not be removed.
func hold(p Progress, pod *corev1.Pod, by []*policyv1.PodDisruptionBudget, why string) Progress {
	held := Blocked{Pod: podKey(pod), Why: why}
	for _, b := range by {
		held.Budgets = append(held.Budgets, b.Namespace+"/"+b.Name)
		held.IsMisconfigured = held.IsMisconfigured || isMisconfigured(b)
	}
	p.Held = append(p.Held, held)
	return p
}

// IsStuck says that somebody has to change something, or the drain will be forced.
func (p Progress) IsStuck() bool {
	if p.Blind != "" {
		return true
	}
	for _, h := range p.Held {
		if h.IsMisconfigured {
			return true
		}
	}
	return false
}

// String tells the progress in a sentence that does not change while nothing happens.
func (p Progress) String() string {
	blind := "what it depends on cannot be watched: " + p.Blind
	switch {
	case p.IsUnknown && p.Blind == "":
		return ""
	case p.IsUnknown:
		return p.until([]string{fmt.Sprintf("Draining Node %s: %s", p.Node, blind)})
	}
	parts := []string{fmt.Sprintf("Draining Node %s: %s left", p.Node, count(p.Left, "pod"))}
	if p.Ending > 0 {
		parts[0] += fmt.Sprintf(", %d ending", p.Ending)
	}
	if n := len(p.Waiting); n > 0 {
		parts[0] += fmt.Sprintf(", %d waiting until other volumes have moved (%s)", n, list(slices.Sorted(slices.Values(p.Waiting))))
	}
	parts = append(parts, p.held()...)
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

// until ends the sentence with what follows if nothing happens.
func (p Progress) until(parts []string) string {
	if p.Cause != "" {
		return strings.Join(append(parts, "no grace is given: "+p.Cause.String()), "; ")
	}
	return strings.Join(append(parts, "what is left at "+p.Deadline.UTC().Format(time.RFC3339)+" is deleted without grace"), "; ")
}

// held tells what holds the pods, those together that are held by the same: first what somebody has to change.
func (p Progress) held() []string {
	var causes []string
	pods := map[string][]string{}
	for _, h := range slices.SortedStableFunc(slices.Values(p.Held), stuckFirst) {
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
	case a.IsMisconfigured == b.IsMisconfigured:
		return 0
	case a.IsMisconfigured:
		return -1
	}
	return 1
}

// cause tells what holds the pod.
func (h Blocked) cause() string {
	kind := "PodDisruptionBudget "
	if len(h.Budgets) > 1 {
		kind = "PodDisruptionBudgets "
	}
	switch {
	case h.IsMisconfigured:
		return "held by " + kind + list(h.Budgets) + ", although all pods there are healthy: change what it allows"
	case len(h.Budgets) > 0:
		return "held by " + kind + list(h.Budgets)
	case h.Why != "":
		return "not removed: " + h.Why
	}
	return "tried again soon"
}

// list joins names, the first ones.
func list(names []string) string {
	if len(names) > named {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:named], ", "), len(names)-named)
	}
	return strings.Join(names, " and ")
}

// String tells the cause in words.
func (c Cause) String() string {
	switch c {
	case CauseOrder:
		return "a label of the machine asks for that"
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
