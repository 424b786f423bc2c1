package candidates

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
)

// member is a Node of the pool as the rules see it.
type member struct {
	*corev1.Node

	current, desired string
	state            v1alpha1.NodeState
	reason           string
	leaving, held    bool
}

func memberOf(w World, node *corev1.Node) member {
	return member{
		Node:    node,
		current: node.Annotations[w.Prefix.CurrentConfig()],
		desired: node.Annotations[w.Prefix.DesiredConfig()],
		state:   v1alpha1.ParseNodeState(node.Annotations[w.Prefix.State()]),
		reason:  node.Annotations[w.Prefix.Reason()],
		leaving: w.Leaving[node.Name] || IsLeaving(node),
		held:    w.Held[node.Name],
	}
}

// isManaged reports whether a daemon has run on the Node. Before its first configuration it reports
// a state only.
func (m member) isManaged() bool { return m.current != "" || m.state != v1alpha1.StateNone }

// isReady reports whether the Node's condition Ready is True.
func (m member) isReady() bool { return m.condition(corev1.NodeReady) == corev1.ConditionTrue }

// isHealthy reports whether no condition of the Node keeps pods away. A condition that is missing
// does not.
func (m member) isHealthy() bool {
	return isOneOf(m.condition(corev1.NodeReady), corev1.ConditionTrue, "") &&
		isOneOf(m.condition(corev1.NodeDiskPressure), corev1.ConditionFalse, "") &&
		isOneOf(m.condition(corev1.NodeNetworkUnavailable), corev1.ConditionFalse, "")
}

func isOneOf[T comparable](value, one, other T) bool { return value == one || value == other }

// condition returns the status of a condition, "" when it is missing.
func (m member) condition(kind corev1.NodeConditionType) corev1.ConditionStatus {
	for _, c := range m.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// isAvailable reports whether the Node is available to pods.
func (m member) isAvailable() bool { return m.isHealthy() && !m.Spec.Unschedulable && !m.leaving }

// isPending reports whether the Node was assigned a configuration that it does not have yet.
func (m member) isPending() bool { return m.desired != "" && m.current != m.desired }

// isDone reports whether the daemon is done with what the Node was assigned. One that was never
// assigned anything is done unless the daemon says otherwise.
func (m member) isDone() bool {
	if m.desired == "" {
		return isOneOf(m.state, v1alpha1.StateDone, v1alpha1.StateNone)
	}
	return m.current == m.desired && m.state == v1alpha1.StateDone
}

// isDegraded reports whether the daemon reports a failure.
func (m member) isDegraded() bool {
	return m.state == v1alpha1.StateDegraded || m.state == v1alpha1.StateUnreconcilable
}

// serves reports whether the Node does not count against maxUnavailable.
func (m member) serves() bool { return m.isAvailable() && m.isDone() }

// isOurs reports whether the Node does not serve because of an update, or because of drift.
func (m member) isOurs() bool {
	return m.isPending() || m.isDegraded() || m.state == v1alpha1.StateWorking
}

// byZoneAndAge is the order of assignments: by zone, Nodes without one last; then the oldest first,
// then by name.
func byZoneAndAge(a, b member) int {
	zoneA, zoneB := a.Labels[corev1.LabelTopologyZone], b.Labels[corev1.LabelTopologyZone]
	if (zoneA == "") != (zoneB == "") {
		return cmp.Compare(zoneB, zoneA)
	}
	return cmp.Or(cmp.Compare(zoneA, zoneB), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}
