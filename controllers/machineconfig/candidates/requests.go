package candidates

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Request is what a daemon requests with the annotation desiredDrain.
type Request struct {
	Node *corev1.Node
	// Value is that of the annotation. What is requested is done when the annotation lastAppliedDrain has it, too.
	Value string
	Do    Answer
	// Why is why it is not done now, for Wait and Refuse.
	Why string
}

// Answer is what is done about a request.
type Answer string

// The answers.
const (
	// Drain means that the Node is drained, and then the request is answered.
	Drain Answer = "Drain"
	// Uncordon means that the cordon of the drain is removed, and the request answered in the same write.
	Uncordon Answer = "Uncordon"
	// Wait means that the drain begins later.
	Wait Answer = "Wait"
	// Refuse means that the Node is not drained.
	Refuse Answer = "Refuse"
)

// Begins reports whether the request is for a drain that has not begun.
func (r Request) Begins() bool {
	return r.Do == Drain && r.Node.Annotations[v1alpha1.AnnotationDrainSince] == ""
}

// answers returns the requests of daemons that have no answer yet, in the order of assignments. A Node whose machine is being deleted is
// drained for that, and one that is held by its MachineDeployment.
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
	case config != p.target && config != p.Pool.Status.CompletedMachineConfig && !slices.Contains(p.Pool.Status.AbandonedMachineConfigs, config):
		return Refuse, "the configuration is none of the pool"
	}
	return Drain, ""
}

// explainDrains returns why drains have not ended, for some Nodes; "" when there is nothing to report.
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
