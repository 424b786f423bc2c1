package candidates

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Request is the request of a daemon by the annotation desiredDrain.
type Request struct {
	Node *corev1.Node
	// Value is that of the annotation. What is requested is done when the annotation lastAppliedDrain
	// has it, too.
	Value string
	Do    Answer
	// Why is why it is not done now, for Wait and Refuse; "" where it is done within seconds.
	Why string
	// Again is, for Wait, after what time to decide again; 0 when an event follows.
	Again time.Duration
}

// Answer is the reaction to a request.
type Answer string

// The answers.
const (
	// Drain means that the Node is drained, and then the request is answered.
	Drain Answer = "Drain"
	// Uncordon means that the cordon of the drain is removed, and the request answered in the same
	// write.
	Uncordon Answer = "Uncordon"
	// Wait means that it is done later.
	Wait Answer = "Wait"
	// Refuse means that the Node is not drained.
	Refuse Answer = "Refuse"
)

// Begins reports whether the request is for a drain that has not begun.
func (r Request) Begins() bool {
	return r.Do == Drain && r.Node.Annotations[v1alpha1.AnnotationDrainSince] == ""
}

// clearing is for how long the end of a cordon waits for the node lifecycle controller to remove
// its taint from a Node that has become Ready.
const clearing = 5 * time.Second

// answers returns the requests of daemons that have no answer yet, in the order of assignments. A
// Node whose machine is being deleted is drained for that, and one that is held by its
// MachineDeployment.
func (p plan) answers() (all []Request) {
	unavailable := p.Absent
	for _, m := range p.members {
		if m.isManaged() && m.isUnavailable() {
			unavailable++
		}
	}
	for _, m := range p.members {
		value := m.Annotations[p.Prefix.DesiredDrain()]
		if value == "" || value == m.Annotations[p.Prefix.LastAppliedDrain()] || m.leaving || m.held || m.DeletionTimestamp != nil {
			continue
		}
		r := Request{Node: m.Node, Value: value}
		r.Do, r.Why = p.answer(m, value)
		if r.Do == Uncordon {
			if r.Again = p.clears(m); r.Again > 0 {
				r.Do = Wait
			}
		}
		if r.Begins() {
			switch {
			case p.Hold != "":
				r.Do, r.Why = Wait, p.Hold
			case m.isUnavailable(): // the drain takes nothing away
			case unavailable >= p.budget:
				r.Do, r.Why = Wait, "maxUnavailable is used up"
			default:
				unavailable++
			}
		}
		all = append(all, r)
	}
	return all
}

// clears returns for how long the node lifecycle controller may still take to remove its taints
// from a Node that is Ready; 0 when the Node has none, and when it takes longer. It writes all
// taints, as the end of a cordon does: of two such writes at the same time one is rejected. Where
// the clock of the Node is ahead nothing is waited for.
func (p plan) clears(m member) time.Duration {
	isTainted := slices.ContainsFunc(m.Spec.Taints, func(t corev1.Taint) bool {
		return isOneOf(t.Key, corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable)
	})
	if !isTainted || !m.isReady() {
		return 0
	}
	ready := slices.IndexFunc(m.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	since := p.Now.Sub(m.Status.Conditions[ready].LastTransitionTime.Time)
	if since < 0 {
		return 0
	}
	return max(clearing-since, 0)
}

// isUnavailable reports whether pods cannot run on the Node, or are being removed from it.
func (m member) isUnavailable() bool {
	return !m.isAvailable() || m.Annotations[v1alpha1.AnnotationDrainSince] != ""
}

// answer returns what to do about the request of a Node, without regard for other Nodes.
func (p plan) answer(m member, value string) (do Answer, why string) {
	if config, ok := strings.CutPrefix(value, v1alpha1.UncordonFor("")); ok {
		if m.isPending() || config != m.current {
			return Refuse, "it is not done with its configuration"
		}
		return Uncordon, ""
	}
	config, ok := strings.CutPrefix(value, v1alpha1.DrainFor(""))
	switch {
	case !ok:
		return Refuse, "the request is unknown"
	case config != m.desired || config == "":
		return Refuse, "it was not assigned that configuration"
	case config != p.target && config != p.Pool.Status.CompletedMachineConfig &&
		!slices.Contains(p.Pool.Status.AbandonedMachineConfigs, config):
		return Refuse, "the configuration is none of the pool"
	}
	return Drain, ""
}

// explainDrains returns why drains have not ended, for some Nodes; "" when there is nothing to
// report.
func (p plan) explainDrains() string {
	var all []string
	for _, r := range p.requests {
		if r.Why != "" {
			all = append(all, fmt.Sprintf("Node %s is not drained: %s", r.Node.Name, r.Why))
		} else if text := p.Drains[r.Node.Name]; text != "" && r.Do == Drain {
			all = append(all, text)
		}
	}
	if len(all) == 0 {
		return ""
	}
	slices.Sort(all)
	if len(all) > mostDrains {
		all = append(all[:mostDrains], fmt.Sprintf("%d more Nodes wait", len(all)-mostDrains))
	}
	return " " + strings.Join(all, ". ") + "."
}

// mostDrains is how many Nodes a message explains the drains of.
const mostDrains = 2

// IsLeaving reports whether the machine of a Node is being deleted, as far as the Node shows it.
func IsLeaving(node *corev1.Node) bool {
	return node.DeletionTimestamp != nil || slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == machinev1alpha1.NodeTerminating && c.Status == corev1.ConditionTrue
	})
}
