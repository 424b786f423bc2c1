package drain

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// finish ends a drain by force: pods are deleted without grace, and their end is not awaited.
func finish(f Facts, by force, left []*corev1.Pod) Verdict {
	v, r := Verdict{Do: Rest, State: Draining}, newRemoval(f)
	if by.cause == CauseTimeout {
		v.Moving = r.verdict.Moving
	}
	over := by.since.Add(forceTime)
	next, refused := over, 0
	for _, pod := range left {
		switch a := f.Memory.Attempts[pod.UID]; {
		case wasForced(pod), a.Forced && a.Accepted:
		case a.Forced && !f.Now.Before(over): // the server refuses, and that was tried for long enough
		case f.of(pod.CreationTimestamp).After(by.since) && !f.Now.Before(over): // a controller creates them faster than they are deleted
		case a.Forced && f.Now.Before(a.NotBefore):
			next, refused = earliest(next, a.NotBefore), refused+1
			v.Progress = addBlocked(v.Progress, pod, nil, a.Why)
		case len(v.Pods) < batch:
			moves, mayMove := r.force(pod, by)
			if !mayMove {
				v.Progress.Waiting = append(v.Progress.Waiting, podKey(pod).String())
				continue
			}
			v.Do, v.Pods = Remove, append(v.Pods, Removal{Pod: pod, How: Delete, Moves: moves})
		}
	}
	switch {
	case v.Do == Remove:
		v.Progress.Left = len(left)
		return v
	case refused+len(v.Progress.Waiting) > 0:
		v.Progress.Left = refused + len(v.Progress.Waiting)
		return f.wait(v.Progress, next).with(v.Moving)
	}
	if f.Order.Stays {
		return leave(f, by, left).with(v.Moving)
	}
	return detach(f, by, follow(f, func(*corev1.Pod) bool { return true }))
}

// force returns how many volumes begin to move when a pod is deleted without grace, and whether
// they may. A drain whose timeout has passed waits for that like any other, but not longer than for
// a refusal of the API server. A drain that is forced for another reason does not wait: the force
// was requested, or a Node that is not ready detaches nothing by itself.
func (r *removal) force(pod *corev1.Pod, by force) (moves int, mayMove bool) {
	if by.cause != CauseTimeout || r.going[pod.UID] || !r.facts.Now.Before(by.since.Add(forceTime)) {
		return 0, true
	}
	volumes := r.volumesWith(pod)
	if moves = len(volumes); moves > 0 && r.free < min(moves, MaxDetachesOfOne) {
		return moves, false
	}
	r.going[pod.UID] = true
	r.free -= moves
	return moves, true
}

// leave waits for a while for pods that were deleted from a Node that stays, and does not touch its
// volumes.
func leave(f Facts, by force, left []*corev1.Pod) Verdict {
	over := by.since
	for _, pod := range left {
		if a := f.Memory.Attempts[pod.UID]; a.At.After(over) {
			over = a.At
		}
	}
	over = over.Add(forceTime)
	switch {
	case len(left) == 0, !f.Now.Before(over):
		return Verdict{Do: Rest, State: GivenUp, Progress: Progress{Left: len(left)}}
	case f.Sight == Listed:
		return do(Watch)
	}
	return f.wait(Progress{Left: len(left), Ending: len(left)}, over)
}

// detach deletes attachments, so that the volumes are free before the VM is deleted, and waits for
// them for a while.
func detach(f Facts, by force, t traffic) Verdict {
	over := by.since.Add(forceTime + f.Settings.DetachTimeout)
	switch {
	case f.Sight == Watched:
	case len(f.Node.Status.VolumesAttached) == 0, !f.Now.Before(over):
		return Verdict{Do: Rest, State: GivenUp}
	case f.Sight == Listed:
		return do(Watch)
	default:
		return f.wait(Progress{IsUnknown: true}, over)
	}
	v := Verdict{Do: Rest, State: Draining}
	attached := detachable(f, by, t)
	// On a working Node, volumes are unmounted normally once their pods have left.
	if until := by.since.Add(f.Settings.DetachTimeout); by.cause == CauseTimeout && isReadyNode(f.Node) && f.Now.Before(until) &&
		len(attached) > 0 {
		var volumes []string
		for _, a := range attached {
			volumes = append(volumes, attachmentKey(a))
		}
		return f.wait(Progress{Detaching: volumes}, until).with(len(attached))
	}
	var next time.Time
	for _, a := range attached {
		wait, isDue := detachAt(f, a, over)
		switch {
		case isDue && len(v.Attachments) < f.FreeDetaches:
			v.Do, v.Attachments = Remove, append(v.Attachments, a)
			continue
		case isDue && f.Now.Before(over): // there is no room for more
			wait = over
			v.Progress.Waiting = append(v.Progress.Waiting, attachmentKey(a))
		case isDue, wait.IsZero():
			continue
		default:
			v.Moving++
		}
		next = earliest(next, wait)
		v.Progress.Detaching = append(v.Progress.Detaching, attachmentKey(a))
	}
	if v.Do == Remove {
		return v
	}
	if len(v.Progress.Detaching) > 0 {
		return f.wait(v.Progress, next).with(v.Moving)
	}
	return Verdict{Do: Rest, State: GivenUp}
}

// detachable returns the attachments to delete: if the Node works, those of pods that stay are
// excluded.
func detachable(f Facts, by force, t traffic) []*storagev1.VolumeAttachment {
	isFine := by.cause == CauseTimeout || by.cause == CauseVolumes
	var found []*storagev1.VolumeAttachment
	for _, a := range f.Volumes.Attachments {
		if a.Spec.NodeName != f.Node.Name {
			continue
		}
		users := t.users[attachmentKey(a)]
		if !isFine || len(users) == 0 || len(leaving(users)) > 0 {
			found = append(found, a)
		}
	}
	return found
}

// detachAt reports whether an attachment is to be deleted now, or returns until when it is awaited;
// a zero time means that it is no longer awaited.
func detachAt(f Facts, a *storagev1.VolumeAttachment, over time.Time) (until time.Time, isDue bool) {
	tried, isTried := f.Memory.Attempts[a.UID]
	switch {
	case a.DeletionTimestamp != nil:
		until = f.of(*a.DeletionTimestamp).Add(f.Settings.DetachTimeout)
	case !isTried:
		return time.Time{}, true
	case tried.Accepted: // the watch is late
		until = tried.At.Add(lateWatch)
	case f.Now.Before(over):
		return tried.NotBefore, !f.Now.Before(tried.NotBefore)
	}
	if !f.Now.Before(until) {
		return time.Time{}, false
	}
	return until, false
}
