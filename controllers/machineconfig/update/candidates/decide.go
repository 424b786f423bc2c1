package candidates

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
)

// World contains all that the decision on a pool needs.
type World struct {
	Now  time.Time
	Pool *v1alpha1.MachineConfigPool
	// Nodes are the members of the pool.
	Nodes []*corev1.Node
	// Live means that Nodes were read from the API server for this decision, and not from a cache.
	Live bool
	// Prefix is that of the annotations of Nodes.
	Prefix v1alpha1.AnnotationPrefix
	// Absent is the number of machines of the pool that have no Node yet.
	Absent int
	// Leaving are the names of Nodes whose machines are being deleted: they do not serve, and are
	// assigned nothing.
	Leaving map[string]bool
	// Held are the names of Nodes whose machines will be replaced: they are assigned nothing.
	Held map[string]bool
	// Conflicts are the names of Nodes that the pool does not have because of another pool.
	Conflicts []string
	// Problem is why it is not known which Nodes the pool has; "" when it is known.
	Problem string
	// Hold is why no Node may begin an update; "" when Nodes may.
	Hold string
	// Unsettled means that an API server was away a short time ago, so that Nodes may be not Ready for
	// no other reason.
	Unsettled bool
	// Drains are sentences about the drains of Nodes that have begun, by the name of the Node.
	Drains map[string]string
}

// Verdict lists what to do.
type Verdict struct {
	// ListLive requests a decision on Nodes that are read from the API server: Nodes are to be
	// assigned, or drains to begin. Nothing else is set then.
	ListLive bool
	// Assign are to be written, each with the version of its Node as a precondition.
	Assign []Assignment
	// Taint and Untaint are the names of Nodes that get or lose the taint UpdateInProgress, sorted.
	Taint, Untaint []string
	// Requests are the requests of daemons that have no answer yet.
	Requests []Request
	// Status is that of the pool before the assignments. Its conditions are those of this package's
	// types only.
	Status v1alpha1.MachineConfigPoolStatus
}

// Assignment is a Node, and the configuration that it is assigned.
type Assignment struct {
	Node   *corev1.Node
	Config string
	// Counted means that the Node did not serve before, or has the configuration already, so that
	// maxUnavailable is not affected.
	Counted bool
}

// Decide returns what to do for a pool.
func Decide(w World) Verdict {
	members := make([]member, 0, len(w.Nodes))
	for _, node := range w.Nodes {
		members = append(members, memberOf(w, node))
	}
	slices.SortFunc(members, byZoneAndAge)
	budget, err := maxUnavailable(w.Pool.Spec.MaxUnavailable, len(members))
	p := plan{World: w, target: w.Pool.Status.CurrentMachineConfig, members: members, budget: budget, invalid: err}
	p.requests = p.answers()
	v := Verdict{Status: p.status(), Requests: p.requests}
	if p.mayAssign() && err == nil {
		v.Assign = p.assignments()
	}
	if !w.Live && (len(v.Assign) > 0 || slices.ContainsFunc(v.Requests, Request.Begins)) {
		return Verdict{ListLive: true}
	}
	v.Taint, v.Untaint = p.taints(v.Assign)
	return v
}

// mayAssign reports whether Nodes may be assigned the target at all.
func (p plan) mayAssign() bool {
	return p.target != "" && !p.Pool.Spec.Paused && p.Hold == "" && p.isDaemons()
}

// isDaemons reports whether the pool assigns configurations to its Nodes itself.
func (p plan) isDaemons() bool {
	return p.Pool.DeletionTimestamp == nil && p.Pool.Spec.Rollout != v1alpha1.RolloutMachineDeployment
}

// plan is a World, prepared.
type plan struct {
	World

	target   string
	members  []member // in the order of assignments
	budget   int
	invalid  error // of spec.maxUnavailable
	requests []Request
}

// assignments returns the Nodes to assign the target.
func (p plan) assignments() (all []Assignment) {
	room := p.budget - p.Absent
	for _, m := range p.members {
		if p.counts(m) {
			room--
		}
	}
	for _, m := range p.members {
		switch {
		case p.isReassigned(m), p.hasBootedWithTarget(m):
			all = append(all, Assignment{Node: m.Node, Config: p.target, Counted: true})
		case p.isCandidate(m) && room > 0:
			all = append(all, Assignment{Node: m.Node, Config: p.target})
			room--
		}
	}
	return all
}

// counts reports whether a Node counts against maxUnavailable. One on which no daemon has run is
// none of the pool's updates.
func (p plan) counts(m member) bool { return m.isManaged() && !m.serves() }

// mayBeAssigned reports whether the target is another one than the Node was assigned, and a daemon
// waits for it.
func (p plan) mayBeAssigned(m member) bool {
	return m.isManaged() && m.desired != p.target && !m.leaving && !m.held
}

// isCandidate reports whether a Node waits for maxUnavailable to be assigned the target.
func (p plan) isCandidate(m member) bool { return p.mayBeAssigned(m) && m.serves() }

// hasBootedWithTarget reports whether a Node was never assigned anything and has the target:
// nothing happens on it when it is assigned.
func (p plan) hasBootedWithTarget(m member) bool {
	return p.mayBeAssigned(m) && m.desired == "" && m.current == p.target && m.state == v1alpha1.StateDone
}

// isReassigned reports whether a Node that counts already is assigned the target.
func (p plan) isReassigned(m member) bool {
	return p.mayBeAssigned(m) && p.counts(m) && (m.isOurs() || m.isAvailable() || p.isBrokenByAbandoned(m))
}

// isBrokenByAbandoned reports whether a Node is done with a target that was abandoned, and not
// healthy. A Node that is cordoned is not meant: the daemon removes its own cordon before it is
// done. Nor is one that may be not Ready because of an API server.
func (p plan) isBrokenByAbandoned(m member) bool {
	return !p.Unsettled && m.isDone() && !m.isHealthy() && !m.Spec.Unschedulable &&
		slices.Contains(p.Pool.Status.AbandonedMachineConfigs, m.desired)
}

// taints returns which Nodes get and lose the taint that keeps pods away from Nodes that are going
// to be updated. While no Node may be assigned the target, the taints stay as they are; a pool that
// will not assign any has none.
func (p plan) taints(assigned []Assignment) (add, remove []string) {
	if p.isDaemons() && !p.mayAssign() {
		return nil, nil
	}
	for _, m := range p.members {
		isAssigned := m.desired == p.target || slices.ContainsFunc(assigned, func(a Assignment) bool { return a.Node == m.Node })
		wanted := p.isDaemons() && m.isManaged() && !isAssigned
		has := slices.ContainsFunc(m.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == v1alpha1.TaintUpdateInProgress && t.Effect == corev1.TaintEffectPreferNoSchedule
		})
		switch {
		case wanted && !has:
			add = append(add, m.Name)
		case !wanted && has:
			remove = append(remove, m.Name)
		}
	}
	slices.Sort(add)
	slices.Sort(remove)
	return add, remove
}

// maxUnavailable returns how many of so many Nodes may be unavailable, at least 1. Errors: the
// value is neither a number nor a percentage.
func maxUnavailable(value *intstr.IntOrString, nodes int) (int, error) {
	if value == nil {
		return 1, nil
	}
	most, err := intstr.GetScaledValueFromIntOrPercent(value, nodes, false)
	if err != nil || most < 0 {
		return 0, fmt.Errorf(`spec.maxUnavailable must be a number that is not negative, or a percentage like "40%%", got %.40q`, value.String())
	}
	return max(most, 1), nil
}
