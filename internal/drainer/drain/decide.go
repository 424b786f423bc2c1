package drain

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// batch is the number of pods that are removed before the pass checks again for more urgent work.
const batch = 20

// Decide returns the next actions. It is total: all facts have a verdict.
func Decide(f Facts) Verdict {
	force, next := forced(f)
	v := decide(f, force, next.since)
	v.Memory.Health, v.Memory.Forced = f.health(), f.Memory.Forced
	if v.Memory.Attempts == nil {
		v.Memory.Attempts = f.Memory.Attempts
	}
	if v.Memory.BlockedSince == nil {
		v.Memory.BlockedSince = f.Memory.BlockedSince
	}
	if v.Memory.Recounts == nil {
		v.Memory.Recounts = f.Memory.Recounts
	}
	if v.Memory.Volumes == nil {
		v.Memory.Volumes = f.Memory.Volumes
	}
	f.reportBlind(&v)
	if force != nil {
		v.Cause = force.cause
	}
	v.Progress.Node, v.Progress.Deadline, v.Progress.Next, v.Progress.Cause = f.Node.Name, next.since, next.cause, v.Cause
	v.Progress.Forced = f.Memory.Forced
	return v
}

func decide(f Facts, force *force, next time.Time) Verdict {
	left := leaving(f.Pods)
	switch {
	case !f.Node.Spec.Unschedulable && !f.Order.IsShut:
		return do(Cordon)
	case f.Sight == Unseen:
		return do(List)
	case len(left) == 0 && !f.Live:
		return do(List)
	case force != nil:
		return finish(f, *force, left)
	case len(left) == 0 && len(f.Node.Status.VolumesAttached) == 0 && f.Sight < Watched:
		return Verdict{Do: Rest, State: Drained} // there was nothing to drain, and no watch is needed
	case f.Sight == Listed:
		return do(Watch)
	case f.Sight == Awaited:
		return f.wait(Progress{IsUnknown: true}, next)
	}
	return empty(f, left, next)
}

// MayRelease reports whether a Node, of which these are all pods, listed after it was cordoned, no
// longer needs our finalizer: it is empty, and it is not being deleted.
func MayRelease(node *corev1.Node, pods []*corev1.Pod) bool {
	return node.Spec.Unschedulable && len(leaving(pods)) == 0 && len(node.Status.VolumesAttached) == 0 && node.DeletionTimestamp == nil
}

// blindTime is how long objects may not be watchable before it is reported: a short interruption is
// not.
const blindTime = 5 * time.Second

// reportBlind adds to the report of a drain that objects cannot be watched, if that has lasted long
// enough.
func (f Facts) reportBlind(v *Verdict) {
	if f.Blind == "" {
		return
	}
	since := f.Memory.BlindSince
	if since.IsZero() {
		since = f.Now
	}
	v.Memory.BlindSince = since
	report := since.Add(blindTime)
	switch {
	case v.Do != Rest || v.State.Ended():
	case !f.Now.Before(report):
		v.Progress.Blind = f.Blind
	case v.Wake == 0 || f.until(report) < v.Wake:
		v.Wake = f.until(report)
	}
}

// wait rests until an event arrives, at the latest until next.
func (f Facts) wait(p Progress, next time.Time) Verdict {
	return Verdict{Do: Rest, State: Draining, Progress: p, Wake: f.until(next)}
}

// of returns a time on an object of the target cluster by the clock of Now.
func (f Facts) of(t metav1.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.Add(-f.Ahead)
}

// until returns the time until t, and at least a moment, so that a deadline is not missed; 0 for
// the zero time.
func (f Facts) until(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return max(t.Sub(f.Now), time.Millisecond)
}

// empty removes the pods that may be removed now, and ends when all have left and their volumes,
// too.
func empty(f Facts, left []*corev1.Pod, next time.Time) Verdict {
	r := newRemoval(f)
	for _, pod := range left {
		r.consider(pod)
	}
	r.verdict.Memory = Memory{Attempts: f.remembered(), BlockedSince: r.blockedSince, Recounts: r.recounts, Volumes: r.traffic.memory}
	switch {
	case len(r.verdict.Budgets) > 0: // the next decision on the pods follows after that
		r.verdict.Do, r.verdict.Pods = RequestRecount, nil
		return r.verdict
	case r.verdict.Do == Remove:
		return r.verdict
	case len(left) == 0 && len(r.traffic.detaching) == 0 && len(r.traffic.stuck) > 0 && f.Order.Stays:
		r.verdict.State, r.verdict.Cause = GivenUp, CauseVolumes
		return r.verdict
	case len(left) == 0 && len(r.traffic.detaching) == 0 && len(r.traffic.stuck) > 0:
		v := detach(f, force{CauseVolumes, latest(r.traffic.stuck)}, r.traffic)
		v.Memory, v.Cause = r.verdict.Memory, CauseVolumes
		return v
	case len(left) == 0 && len(r.traffic.detaching) == 0:
		r.verdict.State = Drained
		return r.verdict
	}
	r.progress.Left = len(left)
	r.progress.Detaching = r.traffic.detaching
	r.verdict.Progress = r.progress
	r.verdict.Wake = f.until(earliest(earliest(next, r.next), r.traffic.next))
	return r.verdict
}

func latest(times map[string]time.Time) (last time.Time) {
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}

// remembered returns the attempts for objects that still exist.
func (f Facts) remembered() map[types.UID]Attempt {
	kept := map[types.UID]Attempt{}
	for _, pod := range f.Pods {
		if a, ok := f.Memory.Attempts[pod.UID]; ok {
			kept[pod.UID] = a
		}
	}
	for _, a := range f.Volumes.Attachments {
		if tried, ok := f.Memory.Attempts[a.UID]; ok {
			kept[a.UID] = tried
		}
	}
	return kept
}
