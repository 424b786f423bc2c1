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

// Recount is what is remembered of the budgets of a pod that has several. The disruption controller follows such a pod for
// one of them only, an arbitrary one each time: what the others say of it may have been wrong for long. So they are marked,
// which has them counted anew, and believed until one of them says something else.
type Recount struct {
	// At is when that was asked for.
	At time.Time
	// Marked are the versions of the budgets that were marked, by UID. Newer ones are the answer.
	Marked map[types.UID]string
	// Tally is what the budgets said when all of them had answered; "" before.
	Tally string
	// Why the server does not let one of them be marked.
	Why string
}

// unmarked is the tally of budgets of which one could not be marked. They never say that, so it is tried again soon.
const unmarked = "unmarked"

// Unmarked returns the memory after a budget could not be marked. why is "" when it has just been written by somebody else.
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

// isCounted says that what the budgets of a pod say can be believed. Where it cannot, it has them marked when it is time.
func (r *removal) isCounted(pod *corev1.Pod, guards []*policyv1.PodDisruptionBudget) bool {
	one, tally := r.facts.Memory.Recounts[pod.UID], tallyOf(guards)
	switch isCounted := !slices.ContainsFunc(guards, isStale); {
	case one.At.IsZero():
	case isCounted && one.Tally == "" && one.isAnswered(guards):
		one.Tally = tally
	case !isCounted && one.Tally != "" && one.Tally != unmarked: // somebody else has marked some, or has changed their spec
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

// marked is what is remembered of budgets that are marked now.
func (r *removal) marked(guards []*policyv1.PodDisruptionBudget) Recount {
	one := Recount{At: r.facts.Now, Marked: map[types.UID]string{}}
	for _, b := range guards {
		one.Marked[b.UID] = b.ResourceVersion
	}
	return one
}

// awaitCount has a pod wait until its budgets have been counted. That takes a moment; when it takes long, it is a reason
// to tell.
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

// isAnswered says that all budgets have been written since they were marked.
func (one Recount) isAnswered(guards []*policyv1.PodDisruptionBudget) bool {
	return !slices.ContainsFunc(guards, func(b *policyv1.PodDisruptionBudget) bool { return b.ResourceVersion == one.Marked[b.UID] })
}

// tallyOf is what budgets say of their pods. Who counts them, and how often, makes no difference.
func tallyOf(guards []*policyv1.PodDisruptionBudget) string {
	var text strings.Builder
	for _, b := range guards {
		s := b.Status
		fmt.Fprintf(&text, "%s %d %d %d %d;", b.Name, s.DisruptionsAllowed, s.CurrentHealthy, s.DesiredHealthy, s.ExpectedPods)
	}
	return text.String()
}
