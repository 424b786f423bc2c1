package drain

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// unhealthyTime is for how long a Node is not ready, or its file system read only, before its pods are deleted without
	// grace: nobody there can end them well.
	unhealthyTime = 5 * time.Minute
	// forceTime is how long deletions without grace are tried that the API server refuses.
	forceTime = time.Minute
	// forceAgain is the time between them.
	forceAgain = 5 * time.Second
)

// conditionReadonly is set by the node problem detector.
const conditionReadonly corev1.NodeConditionType = "ReadonlyFilesystem"

// Cause is why a drain is forced.
type Cause string

// The causes.
const (
	// CauseOrder means that somebody wants it at once.
	CauseOrder Cause = "Order"
	// CauseTimeout means that the pods' time is over.
	CauseTimeout Cause = "Timeout"
	// CauseNotReady means that the Node has not been ready for long.
	CauseNotReady Cause = "NotReady"
	// CauseReadonly means that the Node's file system has been read only for long.
	CauseReadonly Cause = "ReadonlyFilesystem"
	// CauseVolumes means that all pods have left, and that a volume did not detach in time.
	CauseVolumes Cause = "Volumes"
)

// force is a cause, and since when there is one.
type force struct {
	cause Cause
	since time.Time
}

// forced says whether the drain is forced now, and otherwise at which time it will be unless something changes.
func forced(f Facts) (is *force, next time.Time) {
	next = f.Order.deadline()
	if f.Order.Force {
		return &force{CauseOrder, f.Order.Since}, next
	}
	causes := []force{{CauseTimeout, next}}
	for _, c := range f.Node.Status.Conditions {
		at := c.LastTransitionTime.Add(unhealthyTime)
		if at.Before(f.Order.Since) {
			at = f.Order.Since
		}
		switch {
		case c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue:
			causes = append(causes, force{CauseNotReady, at})
		case c.Type == conditionReadonly && c.Status != corev1.ConditionFalse:
			causes = append(causes, force{CauseReadonly, at})
		}
	}
	for _, c := range causes {
		if !f.Now.Before(c.since) {
			return &c, next
		}
		next = earliest(next, c.since)
	}
	return nil, next
}

// isReadyNode says that the Node's kubelet does its work.
func isReadyNode(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// earliest returns the earlier of two times, of which a zero one does not count.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
