package view

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinedeployment/rollout"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// Status summarizes namespaces: counts, and all that is not as it should be.
type Status struct {
	Deployments int `json:"deployments"`
	Sets        int `json:"sets"`
	Machines    int `json:"machines"`
	// Phases has the number of machines in each state.
	Phases []PhaseCount `json:"phases"`
	// RollingOut is how many MachineDeployments are in a rollout.
	RollingOut int `json:"rollingOut"`
	// Replicas is how many replicas live, and HeldSlots how many of Slots a session that lives holds.
	Replicas  int `json:"replicas"`
	HeldSlots int `json:"heldSlots"`
	Slots     int `json:"slots"`
	// Troubles, the worst first. Machines of one set in the same state are one trouble.
	Troubles []Trouble `json:"troubles"`
	Missing  []Missing `json:"missing,omitempty"`
}

// PhaseCount is how many machines are in a state.
type PhaseCount struct {
	State string `json:"state"`
	Count int    `json:"count"`
}

// StatusOf returns the status of all that a snapshot has.
func StatusOf(s Snapshot) Status {
	x := indexOf(s)
	status := Status{
		Deployments: len(s.Deployments), Sets: len(s.Sets), Machines: len(s.Machines), Phases: phases(s.Machines), Troubles: []Trouble{},
		Missing: s.Missing,
	}
	for _, d := range byName(s.Deployments) {
		if _, is := rollout.UnderWay(d, x.sets[d.UID]); is {
			status.RollingOut++
		}
		status.Troubles = append(status.Troubles, DeploymentTroubles(d, s.Now)...)
	}
	for _, set := range byName(s.Sets) {
		troubles := SetTroubles(set, s.Now)
		if metav1.GetControllerOfNoCopy(set) != nil { // its MachineDeployment reports the rest
			troubles = slices.DeleteFunc(troubles, func(t Trouble) bool { return t.Reason != string(v1alpha1.MachineSetFrozen) })
		}
		status.Troubles = append(status.Troubles, troubles...)
	}
	status.Troubles = append(status.Troubles, machineTroubles(s, x)...)
	for _, n := range byName(s.Namespaces) {
		if hold := HoldOf(n); hold != "" {
			status.Troubles = append(status.Troubles, Trouble{
				Object: Object{Kind: KindNamespace, Name: n.Name}, Level: Warning,
				Reason: "DeletionsHeld", Message: "deletions are held by an annotation of the Namespace: " + hold,
			})
		}
	}
	if !s.Misses(MissingLeases) {
		f := FleetOf(s)
		status.Troubles = append(status.Troubles, f.troubles()...)
		status.Slots = len(f.Slots)
		for _, r := range f.Replicas {
			if r.Lives {
				status.Replicas++
				status.HeldSlots += r.Slots
			}
		}
	}
	sortTroubles(status.Troubles)
	return status
}

// phases counts machines by state, the most frequent first.
func phases(machines []*v1alpha1.Machine) []PhaseCount {
	counts := map[string]int{}
	for _, m := range machines {
		counts[StateOf(m)]++
	}
	all := []PhaseCount{}
	for state, count := range counts {
		all = append(all, PhaseCount{state, count})
	}
	slices.SortFunc(all, func(a, b PhaseCount) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.State, b.State)) })
	return all
}

// machineTroubles returns the troubles of machines and their Nodes, with one for all of a parent
// that have the same.
func machineTroubles(s Snapshot, x index) []Trouble {
	var all []Trouble
	at, count := map[string]int{}, map[string]int{}
	for _, m := range byName(s.Machines) {
		troubles := MachineTroubles(m, s.Now)
		if name := m.Labels[v1alpha1.LabelNode]; name != "" && !s.Misses(MissingNodes) && machinefacts.IsReady(m) {
			troubles = append(troubles, nodeTroubles(m, x.nodes[name])...)
		}
		for _, t := range troubles {
			key := fmt.Sprintf("%s/%s/%s/%s", m.Namespace, controllerOf(m), t.Kind, t.Reason)
			count[key]++
			i, known := at[key]
			switch {
			case !known:
				at[key] = len(all)
				all = append(all, t)
			case !t.Since.IsZero() && t.Since.Before(all[i].Since): // the one that lasts the longest is shown
				all[i] = t
			}
		}
	}
	for key, i := range at {
		if n := count[key]; n > 1 {
			all[i].Message = fmt.Sprintf("and %d more; %s", n-1, all[i].Message)
		}
	}
	return all
}
