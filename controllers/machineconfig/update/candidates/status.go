package candidates

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
)

// Reasons of the conditions of a pool.
const (
	ReasonAllUpdated     = "AllNodesUpdated"
	ReasonNotUpdated     = "NodesNotUpdated"
	ReasonNoTarget       = "NoTarget"
	ReasonPaused         = "Paused"
	ReasonUpdating       = "NodesUpdating"
	ReasonInvalidBudget  = "InvalidMaxUnavailable"
	ReasonHeld           = "Held"
	ReasonNodesUnknown   = "NodesUnknown"
	ReasonNodesDegraded  = "NodesDegraded"
	ReasonRenderDegraded = "RenderDegraded"
	ReasonNotDegraded    = "NotDegraded"
	ReasonNodesShared    = "NodesSelectedTwice"
	ReasonNodesExclusive = "NodesSelectedOnce"
)

// status returns counts and conditions. What the RenderController writes stays as it is.
func (p plan) status() v1alpha1.MachineConfigPoolStatus {
	s := *p.Pool.Status.DeepCopy()
	s.ObservedGeneration = p.Pool.Generation
	s.MachineCount, s.UpdatedMachineCount, s.ReadyMachineCount, s.UnavailableMachineCount, s.DegradedMachineCount = int32(len(p.members)), 0,
		0, 0, 0
	for _, m := range p.members {
		isUpdated := p.isUpdated(m)
		add(&s.UpdatedMachineCount, isUpdated)
		add(&s.ReadyMachineCount, isUpdated && m.isAvailable())
		add(&s.UnavailableMachineCount, p.counts(m))
		add(&s.DegradedMachineCount, m.isDegraded())
	}
	isUpdated := p.target != "" && p.Problem == "" && s.ReadyMachineCount == s.MachineCount && s.UnavailableMachineCount == 0
	if isUpdated {
		s.CompletedMachineConfig = p.target
	}
	own := []metav1.Condition{p.updated(s, isUpdated), p.updating(s, isUpdated), p.nodeDegraded(s)}
	own = append(own, p.degraded(own[2]), p.conflict())
	s.Conditions = nil
	for _, c := range own {
		if before := meta.FindStatusCondition(p.Pool.Status.Conditions, c.Type); before != nil {
			s.Conditions = append(s.Conditions, *before)
		}
		c.LastTransitionTime, c.ObservedGeneration = metav1.NewTime(p.Now), p.Pool.Generation
		c.Message = bounded.Text(c.Message, bounded.Message)
		meta.SetStatusCondition(&s.Conditions, c)
	}
	return s
}

func add(count *int32, one bool) {
	if one {
		*count++
	}
}

// isUpdated reports whether a Node is done with the target, and Ready.
func (p plan) isUpdated(m member) bool {
	return p.target != "" && m.desired == p.target && m.isManaged() && m.isDone() && m.isReady()
}

func condition(kind string, isTrue bool, reason, message string) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	if isTrue {
		c.Status = metav1.ConditionTrue
	}
	return c
}

func (p plan) updated(s v1alpha1.MachineConfigPoolStatus, isUpdated bool) metav1.Condition {
	switch {
	case p.target == "":
		return condition(v1alpha1.PoolUpdated, false, ReasonNoTarget, "Nothing has been rendered for the pool yet.")
	case p.Problem != "":
		return condition(v1alpha1.PoolUpdated, false, ReasonNodesUnknown, p.Problem)
	case isUpdated:
		return condition(v1alpha1.PoolUpdated, true, ReasonAllUpdated,
			fmt.Sprintf("All %d Nodes have %s and are available to pods.", s.MachineCount, p.target))
	}
	return condition(v1alpha1.PoolUpdated, false, ReasonNotUpdated,
		fmt.Sprintf("%d of %d Nodes have %s and are available to pods.", s.ReadyMachineCount, s.MachineCount, p.target))
}

func (p plan) updating(s v1alpha1.MachineConfigPoolStatus, isUpdated bool) metav1.Condition {
	switch {
	case p.target == "":
		return condition(v1alpha1.PoolUpdating, false, ReasonNoTarget, "Nothing has been rendered for the pool yet.")
	case p.Problem != "":
		return condition(v1alpha1.PoolUpdating, false, ReasonNodesUnknown, p.Problem)
	case isUpdated:
		return condition(v1alpha1.PoolUpdating, false, ReasonAllUpdated, fmt.Sprintf("All %d Nodes have %s.", s.MachineCount, p.target))
	case p.Pool.Spec.Paused:
		return condition(v1alpha1.PoolUpdating, false, ReasonPaused,
			"The pool is paused, and no further Node is assigned "+p.target+". "+p.explain())
	case p.Hold != "":
		return condition(v1alpha1.PoolUpdating, false, ReasonHeld,
			fmt.Sprintf("No further Node is assigned %s while deletions are held: %s. %s", p.target, p.Hold, p.explain()))
	case p.invalid != nil:
		return condition(v1alpha1.PoolUpdating, false, ReasonInvalidBudget, "No Node is assigned "+p.target+": "+p.invalid.Error())
	}
	return condition(v1alpha1.PoolUpdating, true, ReasonUpdating, p.explain())
}

// explain returns how many Nodes are not updated, grouped by the cause, with their names.
func (p plan) explain() string {
	causes := []struct {
		text string
		is   func(member) bool
	}{
		{"without machine-config-daemon", func(m member) bool { return !m.isManaged() }},
		{"failed", member.isDegraded},
		{"being updated", func(m member) bool { return m.isPending() || m.state == v1alpha1.StateWorking }},
		{"not available with the target", func(m member) bool { return m.desired == p.target }},
		{"of machines that are being deleted or replaced", func(m member) bool { return m.leaving || m.held }},
		{"waiting for maxUnavailable", p.isCandidate},
		{"broken by an abandoned configuration, and assigned the target next", p.isReassigned},
		{"left alone because they are cordoned or not Ready", func(member) bool { return true }},
	}
	found := make([][]string, len(causes))
	for _, m := range p.members {
		if p.isUpdated(m) && m.isAvailable() {
			continue
		}
		for i, cause := range causes {
			if cause.is(m) {
				found[i] = append(found[i], m.Name)
				break
			}
		}
	}
	var parts []string
	for i, cause := range causes {
		if len(found[i]) > 0 {
			parts = append(parts, fmt.Sprintf("%d %s (%s)", len(found[i]), cause.text, listed(found[i])))
		}
	}
	if p.Absent > 0 {
		parts = append(parts, fmt.Sprintf("%d machines have no Node yet", p.Absent))
	}
	return fmt.Sprintf("Of %d Nodes: %s.%s", len(p.members), strings.Join(parts, "; "), p.explainDrains())
}

// mostNames is how many names of each group a message lists.
const mostNames = 5

func listed(names []string) string {
	names = slices.Sorted(slices.Values(names))
	if len(names) <= mostNames {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNames], ", "), len(names)-mostNames)
}

// mostReason is how many bytes of a Node's reason a message has. A kubelet can write the
// annotation.
const mostReason = 150

func (p plan) nodeDegraded(s v1alpha1.MachineConfigPoolStatus) metav1.Condition {
	if s.DegradedMachineCount == 0 {
		return condition(v1alpha1.PoolNodeDegraded, false, ReasonNotDegraded, "No Node reports a failure.")
	}
	var reports []string
	for _, m := range p.members {
		if m.isDegraded() {
			reports = append(reports, fmt.Sprintf("Node %s is %s: %s", m.Name, m.state, bounded.Text(m.reason, mostReason)))
		}
	}
	slices.Sort(reports)
	if len(reports) > mostNames {
		reports = append(reports[:mostNames], fmt.Sprintf("and %d more", len(reports)-mostNames))
	}
	return condition(v1alpha1.PoolNodeDegraded, true, ReasonNodesDegraded, strings.Join(reports, "; "))
}

// degraded returns the condition that sums up the others.
func (p plan) degraded(nodes metav1.Condition) metav1.Condition {
	if rendering := meta.FindStatusCondition(p.Pool.Status.Conditions, v1alpha1.PoolRenderDegraded); rendering != nil &&
		rendering.Status == metav1.ConditionTrue {
		return condition(v1alpha1.PoolDegraded, true, ReasonRenderDegraded, rendering.Message)
	}
	return condition(v1alpha1.PoolDegraded, nodes.Status == metav1.ConditionTrue, nodes.Reason, nodes.Message)
}

func (p plan) conflict() metav1.Condition {
	if len(p.Conflicts) == 0 {
		return condition(v1alpha1.PoolNodeConflict, false, ReasonNodesExclusive, "No other pool has the same right to a Node.")
	}
	return condition(v1alpha1.PoolNodeConflict, true, ReasonNodesShared, fmt.Sprintf(
		"Another pool has the same right to %d Nodes, which are not updated by this one: %s. Change a nodeSelector, a priority or a machineRef.",
		len(p.Conflicts), listed(p.Conflicts)))
}
