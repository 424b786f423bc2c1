package brake

import (
	"cmp"
	"strings"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Scope is a zone of a target cluster, or, without a zone, all of the cluster. Zones of two clusters have nothing to do with
// each other, also if they have the same name: to different accounts of a cloud it may mean different places.
type Scope struct {
	// Target is the cluster's name; "" is the only one of the fleet.
	Target string
	// Zone of it; of a machine "" says that its zone is not known.
	Zone string
}

// String says it for people.
func (s Scope) String() string {
	cluster := "the target cluster"
	if s.Target != "" {
		cluster += " " + s.Target
	}
	if s.Zone == "" {
		return cluster
	}
	return "zone " + s.Zone + " of " + cluster
}

// compare orders scopes, a cluster before its zones.
func (s Scope) compare(other Scope) int {
	return cmp.Or(strings.Compare(s.Target, other.Target), strings.Compare(s.Zone, other.Zone))
}

// cluster is the scope of the whole cluster.
func (s Scope) cluster() Scope { return Scope{Target: s.Target} }

// Count counts machines that have been healthy Nodes: those that are and those that are not any more.
type Count struct{ Ready, NotReady int }

// Add adds another count.
func (c Count) Add(other Count) Count {
	return Count{Ready: c.Ready + other.Ready, NotReady: c.NotReady + other.NotReady}
}

// Of counts one machine. One that is being deleted, is updated in place, or has failed and is preserved, is out of it, and one
// that was never healthy says nothing of the place that it is in. One whose update in place has failed is not Ready: an update
// that fails everywhere must not become a replacement of everything.
func Of(m *v1alpha1.Machine) Count {
	s := m.Status.CurrentStatus
	switch {
	case m.DeletionTimestamp != nil:
		return Count{}
	case s.Phase == v1alpha1.MachineRunning:
		return Count{Ready: 1}
	case isUnhealthy(m), failedItsHealth(m) && s.PreserveExpiryTime == nil:
		return Count{NotReady: 1}
	}
	return Count{}
}

// failedItsHealth says that the machine has failed, and was a healthy Node before.
func failedItsHealth(m *v1alpha1.Machine) bool {
	return m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed && m.Status.LastOperation.Type != v1alpha1.MachineOperationCreate
}
