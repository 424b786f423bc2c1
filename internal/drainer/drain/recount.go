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

// Recount is the state of the budgets of a pod that has several. The disruption controller updates
// such a pod in one of them only, an arbitrary one each time: the status of the others may be wrong
// for long. So a recount is requested, which makes the controller count them again, and trusted
// until the status of one of them changes.
type Recount struct {
	// At is when the count was requested.
	At time.Time
	// Requested are the versions of the budgets whose recount was requested, by UID. Newer versions
	// are the result.
	Requested map[types.UID]string
	// Tally is the status of the budgets after all of them were counted; "" before.
	Tally string
	// Why is the server's reason for refusing to mark one of them.
	Why string
}

// requestFailed is the tally if the recount of one of the budgets could not be requested. No status
// equals it, so it is tried again soon.
const requestFailed = "request failed"

// RequestFailed returns the memory after the recount of a budget could not be requested. why is ""
// if another client has just written it.
func (m Memory) RequestFailed(budget types.UID, why string) Memory {
	recounts := map[types.UID]Recount{}
	for pod, one := range m.Recounts {
		if _, concerned := one.Requested[budget]; concerned {
			one.Tally, one.Why = requestFailed, why
		}
		recounts[pod] = one
	}
	m.Recounts = recounts
	return m
}

// isCounted reports whether the status of a pod's budgets can be trusted. If it cannot, it requests
// a recount when it is time.
func (r *removal) isCounted(pod *corev1.Pod, guards []*policyv1.PodDisruptionBudget) bool {
	one, tally := r.facts.Memory.Recounts[pod.UID], tallyOf(guards)
	switch isCounted := !slices.ContainsFunc(guards, isStale); {
	case one.At.IsZero():
	case isCounted && one.Tally == "" && one.isAnswered(guards):
		one.Tally = tally
	case !isCounted && one.Tally != "" && one.Tally != requestFailed: // another client has requested some recounts, or has changed their spec
		one = r.requested(slices.DeleteFunc(slices.Clone(guards), func(b *policyv1.PodDisruptionBudget) bool { return !isStale(b) }))
	}
	isNews := one.Tally != "" && one.Tally != tally
	again := one.At.Add(evictSeldom)
	if isNews {
		again = one.At.Add(evictPause)
	}
	isTime := !r.facts.Now.Before(again)
	if isTime {
		one = r.requested(guards)
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

// requested returns the state of budgets whose recount is requested now.
func (r *removal) requested(guards []*policyv1.PodDisruptionBudget) Recount {
	one := Recount{At: r.facts.Now, Requested: map[types.UID]string{}}
	for _, b := range guards {
		one.Requested[b.UID] = b.ResourceVersion
	}
	return one
}

// awaitCount makes a pod wait until its budgets have been counted. That takes a moment; if it takes
// long, it is reported.
func (r *removal) awaitCount(pod *corev1.Pod, blockers []*policyv1.PodDisruptionBudget) {
	one := r.recounts[pod.UID]
	if late := one.At.Add(lateWatch); one.Tally == "" && r.facts.Now.Before(late) {
		r.next = earliest(r.next, late)
		r.progress.IsUnknown = true
		r.full = r.full || len(r.volumesWith(pod)) > 0 // it would be its turn
		return
	}
	if one.Tally == "" || one.Why != "" {
		r.blockedSince[pod.UID] = r.since(pod)
		r.next = earliest(r.next, r.evictUntil(pod))
	}
	if one.Why != "" {
		blockers = nil
	}
	r.block(pod, blockers, one.Why)
}

// isAnswered reports whether all budgets have been written since their recount was requested.
func (r Recount) isAnswered(guards []*policyv1.PodDisruptionBudget) bool {
	return !slices.ContainsFunc(guards, func(b *policyv1.PodDisruptionBudget) bool { return b.ResourceVersion == r.Requested[b.UID] })
}

// tallyOf returns the status of budgets for their pods. By whom and how often they were counted
// makes no difference.
func tallyOf(guards []*policyv1.PodDisruptionBudget) string {
	var text strings.Builder
	for _, b := range guards {
		s := b.Status
		fmt.Fprintf(&text, "%s %d %d %d %d;", b.Name, s.DisruptionsAllowed, s.CurrentHealthy, s.DesiredHealthy, s.ExpectedPods)
	}
	return text.String()
}
