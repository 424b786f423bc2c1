package view

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// Drain is the drain of a Node, or what one would find.
type Drain struct {
	Node    string `json:"node"`
	Machine Object `json:"machine,omitzero"`
	// Why the Node is drained; "" if it is not.
	Why string `json:"why,omitempty"`
	// Since is when the drain was requested, and Forced when it is ended by force; zero without a
	// drain.
	Since  time.Time `json:"since,omitzero"`
	Forced time.Time `json:"forced,omitzero"`
	// Timeout is how long a drain takes before it is forced, and EvictTime for how long a pod may
	// refuse its eviction.
	Timeout   string `json:"timeout"`
	EvictTime string `json:"evictTime"`
	// Report is the last operation of the machine, which the fleet has written.
	Report  string        `json:"report,omitempty"`
	Pods    []DrainPod    `json:"pods"`
	Budgets []DrainBudget `json:"budgets"`
	Missing []Missing     `json:"missing,omitempty"`
}

// PodState is the state of a pod for a drain.
type PodState string

// The states.
const (
	PodBlocked PodState = "Blocked"
	PodEnding  PodState = "Ending"
	PodFree    PodState = "Evictable"
	PodStays   PodState = "Stays"
)

// DrainPod is a pod of the Node.
type DrainPod struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	State     PodState `json:"state"`
	// Budgets that select the pod.
	Budgets []string `json:"budgets,omitempty"`
	Why     string   `json:"why,omitempty"`
	// Stuck reports whether waiting does not help.
	Stuck bool `json:"stuck,omitempty"`
}

// DrainBudget is a PodDisruptionBudget that selects a pod of the Node.
type DrainBudget struct {
	Name     string `json:"name"`
	Allowed  int32  `json:"allowed"`
	Healthy  int32  `json:"healthy"`
	Desired  int32  `json:"desired"`
	Expected int32  `json:"expected"`
}

// DrainOf returns the drain of a Node, from its pods and budgets. m is its machine; nil if it has
// none or none that is known.
func DrainOf(s Snapshot, node *corev1.Node, m *v1alpha1.Machine) *Drain {
	settings := drain.Settings{Timeout: s.Timeouts.Drain, MaxEvictRetries: s.Timeouts.MaxEvictRetries}
	d := &Drain{Node: node.Name, Pods: []DrainPod{}, Budgets: []DrainBudget{}, Missing: s.Missing}
	order := drain.ForConfiguration(nil, s.Now, settings)
	if m != nil {
		d.Machine = objectOf(KindMachine, m)
		order = d.ordered(m, node, settings, s.Now)
	}
	d.Timeout, d.EvictTime = order.Timeout.String(), order.EvictTime.String()
	if d.Why != "" {
		d.Since, d.Forced = order.Since, order.Since.Add(order.Timeout)
		d.Report = m.Status.LastOperation.Description
		if order.Force {
			d.Forced, d.Why = s.Now, d.Why+"; by its label it is forced"
		}
	}
	for _, o := range drain.Outlooks(s.Pods, s.Budgets, settings) {
		d.addPod(o, s.Now)
	}
	slices.SortFunc(d.Budgets, func(a, b DrainBudget) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortStableFunc(d.Pods, func(a, b DrainPod) int { return cmp.Compare(a.rank(), b.rank()) })
	return d
}

// ordered returns the order of the drain that a machine is in, with its reason, or of the one that
// a deletion would begin.
func (d *Drain) ordered(m *v1alpha1.Machine, node *corev1.Node, settings drain.Settings, now time.Time) drain.Order {
	switch stage := machinefacts.InPlaceCondition(node); {
	case m.DeletionTimestamp != nil:
		d.Why = "the machine is being deleted"
		return drain.ForDeletion(m, settings)
	case machinefacts.IsPreservedFailed(m, now):
		d.Why = "the machine has failed and is preserved"
		return drain.ForPreservation(m, settings)
	case stage != nil && stage.Reason == v1alpha1.NodeReasonSelectedForUpdate:
		d.Why = "the Node is selected for an update in place"
		return drain.ForUpdate(m, stage.LastTransitionTime.Time, settings)
	}
	return drain.ForDeletion(m, settings)
}

func (p DrainPod) rank() int {
	if p.Stuck {
		return -1
	}
	return slices.Index([]PodState{PodBlocked, PodEnding, PodFree, PodStays}, p.State)
}

func (d *Drain) addPod(o drain.Outlook, now time.Time) {
	pod := DrainPod{Namespace: o.Pod.Namespace, Name: o.Pod.Name, State: PodFree}
	for _, b := range o.Budgets {
		name := b.Namespace + "/" + b.Name
		pod.Budgets = append(pod.Budgets, name)
		if !slices.ContainsFunc(d.Budgets, func(known DrainBudget) bool { return known.Name == name }) {
			is := b.Status
			d.Budgets = append(d.Budgets, DrainBudget{name, is.DisruptionsAllowed, is.CurrentHealthy, is.DesiredHealthy, is.ExpectedPods})
		}
	}
	switch {
	case o.Stays:
		pod.State, pod.Why = PodStays, "of a DaemonSet or a mirror pod: it ends with the Node"
	case !o.Ends.IsZero() && o.Ends.Before(now):
		pod.State, pod.Why = PodEnding, "its grace period was over at "+o.Ends.UTC().Format(time.RFC3339)
	case !o.Ends.IsZero():
		pod.State, pod.Why = PodEnding, "its grace period ends at "+o.Ends.UTC().Format(time.RFC3339)
	case o.Blocked != nil:
		pod.State, pod.Why = PodBlocked, o.Blocked.Text()
		pod.Stuck = o.Blocked.IsMisconfigured || o.Blocked.IsUncounted || o.Blocked.IsUnevictable
	}
	d.Pods = append(d.Pods, pod)
}

// Count returns how many pods are in a state.
func (d *Drain) Count(state PodState) (n int) {
	for _, p := range d.Pods {
		if p.State == state {
			n++
		}
	}
	return n
}

// FindMachine returns the machine of a Node among those of a snapshot: the one that the Node is
// bound to, or else the one whose label names it. Errors: there is none.
func (s Snapshot) FindMachine(node *corev1.Node) (*v1alpha1.Machine, error) {
	ref, bound := v1alpha1.MachineOf(node)
	for _, m := range s.Machines {
		if bound && m.UID == ref.UID || !bound && m.Labels[v1alpha1.LabelNode] == node.Name {
			return m, nil
		}
	}
	if bound {
		return nil, fmt.Errorf("no Machine %s/%s with the UID %s of Node %s was found", ref.Namespace, ref.Name, ref.UID, node.Name)
	}
	return nil, fmt.Errorf("no Machine of Node %s was found", node.Name)
}
