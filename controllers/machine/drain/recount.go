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

// Recount is the state of the budgets of a pod that has several. The disruption controller updates such a pod in one of them only,
// an arbitrary one each time: the status of the others may be wrong for long. So they are marked, which makes the controller count
// them again, and trusted until the status of one of them changes.
type Recount struct {
	// At is when the count was requested.
	At time.Time
	// Marked are the versions of the budgets that were marked, by UID. Newer versions are the result.
	Marked map[types.UID]string
	// Tally is the status of the budgets after all of them were counted; "" before.
	Tally string
	// Why is the server's reason for refusing to mark one of them.
	Why string
}

// unmarked is the tally if one of the budgets could not be marked. No status equals it, so it is tried again soon.
const unmarked = "unmarked"

// Unmarked returns the memory after a budget could not be marked. why is "" if another client has just written it.
func (m Memory) Unmarked(budget types.UID, why string) Memory {
	recounts := map[types.UID]Recount{}
	for pod, one := range m.Recounts {
		if _, concerned := one.Marked[budget]; concerned {
			one.Tally, one.Why = unmarked, why
		}
		recounts[pod] = one
	}
	m.Recounts = recounts
	return m
}

// isCounted reports whether the status of a pod's budgets can be trusted. If it cannot, it marks them when it is time.
func (r *removal) isCounted(pod *corev1.Pod, guards []*policyv1.PodDisruptionBudget) bool {
	one, tally := r.facts.Memory.Recounts[pod.UID], tallyOf(guards)
	switch isCounted := !slices.ContainsFunc(guards, isStale); {
	case one.At.IsZero():
	case isCounted && one.Tally == "" && one.isAnswered(guards):
		one.Tally = tally
	case !isCounted && one.Tally != "" && one.Tally != unmarked: // another client has marked some, or has changed their spec
		one = r.marked(slices.DeleteFunc(slices.Clone(guards), func(b *policyv1.PodDisruptionBudget) bool { return !isStale(b) }))
	}
	isNews := one.Tally != "" && one.Tally != tally
	again := one.At.Add(evictSeldom)
	if isNews {
		again = one.At.Add(evictPause)
	}
	isTime := !r.facts.Now.Before(again)
	if isTime {
		one = r.marked(guards)
		again = one.At.Add(evictSeldom)
		for _, b := range guards {
			if !slices.Contains(r.verdict.Budgets, b) {
				r.verdict.Budgets = append(r.verdict.Budgets, b)
			}
		}
	}
	r.recounts[pod.UID], r.next = one, earliest(r.next, again)
	return one.Tally == tally
}

// marked returns the state of budgets that are marked now.
func (r *removal) marked(guards []*policyv1.PodDisruptionBudget) Recount {
	one := Recount{At: r.facts.Now, Marked: map[types.UID]string{}}
	for _, b := range guards {
		one.Marked[b.UID] = b.ResourceVersion
	}
	return one
}

// awaitCount makes a pod wait until its budgets have been counted. That takes a moment; if it takes long, it is reported.
func (r *removal) awaitCount(pod *corev1.Pod, held []*policyv1.PodDisruptionBudget) {
	one := r.recounts[pod.UID]
	if late := one.At.Add(lateWatch); one.Tally == "" && r.facts.Now.Before(late) {
		r.next = earliest(r.next, late)
		r.progress.IsUnknown = true
		r.full = r.full || len(r.volumesWith(pod)) > 0 // it would be its turn
		return
	}
	if one.Tally == "" || one.Why != "" {
		r.heldSince[pod.UID] = r.since(pod)
		r.next = earliest(r.next, r.evictUntil(pod))
	}
	if one.Why != "" {
		held = nil
	}
	r.progress = hold(r.progress, pod, held, one.Why)
}

// isAnswered reports whether all budgets have been written since they were marked.
func (one Recount) isAnswered(guards []*policyv1.PodDisruptionBudget) bool {
	return !slices.ContainsFunc(guards, func(b *policyv1.PodDisruptionBudget) bool { return b.ResourceVersion == one.Marked[b.UID] })
}

// tallyOf returns the status of budgets for their pods. By whom and how often they were counted makes no difference.
func tallyOf(guards []*policyv1.PodDisruptionBudget) string {
	var text strings.Builder
	for _, b := range guards {
		s := b.Status
		fmt.Fprintf(&text, "%s %d %d %d %d;", b.Name, s.DisruptionsAllowed, s.CurrentHealthy, s.DesiredHealthy, s.ExpectedPods)
	}
	return text.String()
}
