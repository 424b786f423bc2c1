package drain

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
)

// MaxDetaches is the maximum number of moving volumes of a target cluster for one process.
const MaxDetaches = 50

// stayed is why a pod is left whose removal was accepted.
const stayed = "the API server accepts the request and does not delete the pod"

// MaxDetachesOfOne is how many of them may belong to machines of one namespace. The others are a
// reserve, so that volumes of one tenant that never detach do not stop the drains of others.
const MaxDetachesOfOne = 40

const (
	// evictAgain is when a pod is tried again that was refused for a reason whose end no event
	// reports.
	evictAgain = 20 * time.Second
	// evictSeldom is when a pod is tried again although the budgets that block it have not changed.
	evictSeldom = 2 * time.Minute
	// evictPause is the minimum time between two attempts: changes of budgets reach many drains at the
	// same time.
	evictPause = 2 * time.Second
	// lateWatch is how late a watch may show what the API server has accepted. What it does not show
	// by then is tried again.
	lateWatch = 10 * time.Second
	// longGrace is the longest grace period of a pod that is not named while it is ending.
	longGrace = time.Minute
	// lateEnd is how long the grace period of a pod is over before it is named. Until then its kubelet
	// may just be slow.
	lateEnd = 30 * time.Second
)

// removal collects which pods may be removed now, and why the others may not.
type removal struct {
	facts    Facts
	traffic  traffic
	verdict  Verdict
	progress Progress
	next     time.Time // when this may be different, with nothing else happening

	going        map[types.UID]bool
	blockedSince map[types.UID]time.Time
	recounts     map[types.UID]Recount
	free         int  // volumes more that may begin to move
	full         bool // no further pod with volumes may go
}

func newRemoval(f Facts) *removal {
	r := &removal{
		facts: f, verdict: Verdict{Do: Rest, State: Draining}, free: f.FreeDetaches,
		going: map[types.UID]bool{}, blockedSince: map[types.UID]time.Time{}, recounts: map[types.UID]Recount{},
	}
	for _, pod := range f.Pods {
		a, tried := f.Memory.Attempts[pod.UID]
		isAccepted := a.Accepted && f.Now.Before(a.shows())
		switch since, isBlocked := f.Memory.BlockedSince[pod.UID]; {
		case isBlocked:
			r.blockedSince[pod.UID] = since
		case tried && !a.Accepted:
			r.blockedSince[pod.UID] = a.At
		}
		if pod.DeletionTimestamp == nil && isAccepted {
			r.next = earliest(r.next, a.shows())
		}
		r.going[pod.UID] = pod.DeletionTimestamp != nil || isAccepted
	}
	r.traffic = follow(f, func(pod *corev1.Pod) bool { return r.going[pod.UID] })
	r.verdict.Moving = len(r.traffic.moving)
	return r
}

// isIgnored reports whether the API server accepts the removal of a pod and does not delete it, as
// far as a watch that is not late shows.
func (f Facts) isIgnored(pod *corev1.Pod, a Attempt) bool {
	return a.IsRepeated && pod.DeletionTimestamp == nil && f.Blind == ""
}

// consider removes a pod if it is its turn.
func (r *removal) consider(pod *corev1.Pod) {
	if a := r.facts.Memory.Attempts[pod.UID]; r.going[pod.UID] && r.facts.isIgnored(pod, a) {
		r.block(pod, nil, cmp.Or(a.Why, stayed))
		return
	}
	if r.going[pod.UID] {
		r.progress.Ending++
		r.noteEnding(pod)
		return
	}
	guards := guards(r.facts, pod)
	if len(guards) > 1 && !r.facts.Settings.SeveralBudgets {
		r.progress = addUnevictable(r.progress, pod, guards)
		return
	}
	blockers := blocking(pod, guards)
	how := r.how(pod, len(guards), len(blockers))
	if len(guards) > 1 && how != Delete && !r.isCounted(pod, guards) {
		r.awaitCount(pod, blockers)
		return
	}
	if at, isDue := r.due(pod, len(blockers) == 0); !isDue {
		r.next = earliest(r.next, at)
		r.block(pod, blockers, r.facts.Memory.Attempts[pod.UID].Why)
		return
	}
	if how == "" {
		r.next = earliest(r.next, r.evictUntil(pod))
		r.blockedSince[pod.UID] = r.since(pod)
		r.block(pod, blockers, "")
		return
	}
	volumes := r.volumesWith(pod)
	if len(volumes) > 0 && !r.mayMove(volumes) {
		r.progress.Waiting = append(r.progress.Waiting, podKey(pod).String())
		return
	}
	if len(r.verdict.Pods) == batch {
		return
	}
	removed := Removal{Pod: pod, How: how, Moves: len(volumes)}
	if how == Take {
		removed.Budgets = slices.DeleteFunc(guards, func(b *policyv1.PodDisruptionBudget) bool { return isFree(pod, b) })
	}
	r.verdict.Do, r.verdict.Pods = Remove, append(r.verdict.Pods, removed)
	r.going[pod.UID] = true
	r.free -= len(volumes)
	for _, v := range volumes {
		r.traffic.moving[v.key] = v.known
	}
}

// block reports a pod that could not be removed, and when it is deleted although it may not be
// evicted.
func (r *removal) block(pod *corev1.Pod, by []*policyv1.PodDisruptionBudget, why string) {
	r.progress = addBlocked(r.progress, pod, by, why)
	if _, isBlocked := r.blockedSince[pod.UID]; isBlocked {
		r.progress.Blocked[len(r.progress.Blocked)-1].Until = latestOf(r.evictUntil(pod), r.facts.Memory.Attempts[pod.UID].NotBefore)
	}
}

// noteEnding names a pod that has not ended although its grace period is over, or sets the time to
// check it again, and names it if that is long.
func (r *removal) noteEnding(pod *corev1.Pod) {
	if pod.DeletionTimestamp == nil {
		return
	}
	ends, grace := r.facts.of(*pod.DeletionTimestamp), pod.DeletionGracePeriodSeconds
	switch late := ends.Add(lateEnd); {
	case !r.facts.Now.Before(late):
		r.progress.Late = append(r.progress.Late, podKey(pod).String())
		return
	case grace != nil && *grace > int64(longGrace.Seconds()):
		r.progress.Slow, r.progress.SlowUntil = append(r.progress.Slow, podKey(pod).String()), latestOf(r.progress.SlowUntil, ends)
	}
	r.next = earliest(r.next, ends.Add(lateEnd))
}

// how returns how a pod is removed; "" means that its budgets have to change first.
func (r *removal) how(pod *corev1.Pod, guards, blockers int) How {
	_, isBlocked := r.blockedSince[pod.UID]
	switch isLate := !r.facts.Now.Before(r.evictUntil(pod)); {
	case isLate && (isBlocked || blockers > 0 && guards > 1):
		return Delete
	case guards < 2:
		return Evict
	case blockers > 0:
		return ""
	}
	return Take
}

// due reports whether the API server may be asked for a pod now, or when at the latest. A pod that
// was refused is tried again when its budgets allow it, and otherwise after some time; after the
// time for evictions it is deleted instead.
func (r *removal) due(pod *corev1.Pod, isAllowed bool) (at time.Time, isDue bool) {
	a, tried := r.facts.Memory.Attempts[pod.UID]
	if !tried || a.Accepted {
		return time.Time{}, true
	}
	at = a.NotBefore
	if again := earliest(a.At.Add(evictSeldom), r.evictUntil(pod)); !isAllowed && again.After(at) {
		at = again
	}
	return at, !r.facts.Now.Before(at)
}

// evictUntil returns when a pod that still may not be evicted is deleted without grace. Each has
// its own time, which begins when it is its turn: a pod with volumes may wait for hours until those
// of others have moved.
func (r *removal) evictUntil(pod *corev1.Pod) time.Time {
	return r.since(pod).Add(r.facts.Order.EvictTime)
}

// since returns since when a pod is blocked: now, if it was not before.
func (r *removal) since(pod *corev1.Pod) time.Time {
	if since, isBlocked := r.blockedSince[pod.UID]; isBlocked {
		return since
	}
	return r.facts.Now
}

// volumesWith returns the volumes that begin to move with this pod: no other pod uses them.
func (r *removal) volumesWith(pod *corev1.Pod) []volume {
	var with []volume
	for _, v := range volumesOf(r.facts, pod) {
		if allGoing(r.traffic.users[v.key], func(user *corev1.Pod) bool { return user == pod || r.going[user.UID] }) {
			with = append(with, v)
		}
	}
	return with
}

// mayMove reports whether volumes may begin to move. If those of a pod may not, those of the pods
// after it wait, too: otherwise it would never have its turn.
func (r *removal) mayMove(volumes []volume) bool {
	most := max(r.facts.Settings.VolumeParallelism, 1)
	for _, v := range volumes {
		if !v.known {
			most = 1
		}
	}
	for _, known := range r.traffic.moving {
		if !known {
			most = 1
		}
	}
	if len(r.traffic.moving) >= most || r.free < min(len(volumes), MaxDetachesOfOne) {
		r.full = true
	}
	return !r.full
}
