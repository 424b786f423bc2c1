package drain

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// unhealthyTime is how long a Node may be not ready, or its file system read only, before its pods
	// are deleted without grace: its kubelet cannot end them properly.
	unhealthyTime = 5 * time.Minute
	// forceTime is how long refused deletions without grace are tried.
	forceTime = time.Minute
	// forceAgain is the time between these attempts.
	forceAgain = 5 * time.Second
)

// conditionReadonly is set by the node problem detector.
const conditionReadonly corev1.NodeConditionType = "ReadonlyFilesystem"

// Cause is the reason why a drain is forced.
type Cause string

// The causes.
const (
	// CauseOrder means that the force was requested.
	CauseOrder Cause = "Order"
	// CauseTimeout means that the timeout of the pods has passed.
	CauseTimeout Cause = "Timeout"
	// CauseNotReady means that the Node has not been ready for too long.
	CauseNotReady Cause = "NotReady"
	// CauseReadonly means that the Node's file system has been read only for too long.
	CauseReadonly Cause = "ReadonlyFilesystem"
	// CauseVolumes means that all pods have left, and that a volume did not detach in time.
	CauseVolumes Cause = "Volumes"
)

// force is a cause, and its start.
type force struct {
	cause Cause
	since time.Time
}

// conditionOf are the conditions of Nodes that force a drain.
var conditionOf = map[Cause]corev1.NodeConditionType{CauseNotReady: corev1.NodeReady, CauseReadonly: conditionReadonly}

// health returns what this process has seen of these conditions, up to now. A kubelet writes the
// times of its conditions by its own clock: what changed while this process looked has changed
// between two looks, regardless of what these times are.
func (f Facts) health() map[corev1.NodeConditionType]Health {
	all := map[corev1.NodeConditionType]Health{}
	for _, c := range f.Node.Status.Conditions {
		if c.Type != corev1.NodeReady && c.Type != conditionReadonly {
			continue
		}
		is := Health{At: f.Now, Transition: c.LastTransitionTime.Time}
		is.Bad = c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue ||
			c.Type == conditionReadonly && c.Status != corev1.ConditionFalse
		if is.Since = f.of(c.LastTransitionTime); is.Since.After(f.Now) {
			is.Since = f.Now
		}
		if was, known := f.Memory.Health[c.Type]; known && was.Bad == is.Bad && was.Transition.Equal(is.Transition) {
			is.Since = was.Since
		} else if known {
			is.Since = latestOf(is.Since, was.At)
		}
		all[c.Type] = is
	}
	return all
}

// forced returns the force of the drain, and otherwise the one that follows without a change.
func forced(f Facts) (is *force, next force) {
	next = force{CauseTimeout, f.Order.deadline()}
	if f.Order.Force {
		return &force{CauseOrder, f.Order.Since}, next
	}
	causes, health := []force{next}, f.health()
	for _, c := range []force{{cause: CauseNotReady}, {cause: CauseReadonly}} {
		is := health[conditionOf[c.cause]]
		if !is.Bad {
			continue
		}
		c.since = latestOf(is.Since.Add(unhealthyTime), f.Order.Since, f.Order.Reach.Settled())
		if back := f.Order.Reach.Back; !back.IsZero() { // during an outage the Node could not report that it is well
			c.since = latestOf(c.since, back.Add(unhealthyTime))
		}
		causes = append(causes, c)
	}
	for _, c := range causes {
		if !f.Now.Before(c.since) {
			return &c, next
		}
		if c.since.Before(next.since) {
			next = c
		}
	}
	return nil, next
}

// isReadyNode reports whether the Node's kubelet works.
func isReadyNode(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// latestOf returns the latest of some times.
func latestOf(a time.Time, others ...time.Time) time.Time {
	for _, b := range others {
		if b.After(a) {
			a = b
		}
	}
	return a
}

// earliest returns the earlier of two times; a zero time does not count.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
