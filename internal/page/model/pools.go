package model

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
)

// circuitBreaker is the reason of the trouble of an open circuit breaker.
const circuitBreaker = string(v1alpha1.MachineDeploymentCircuitBreakerOpen)

// mostPools is how many MachineDeployments have a row.
const mostPools = 1000

// Pool is a MachineDeployment.
type Pool struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Desired   int32  `json:"desired"`
	Available int32  `json:"available"`
	Total     int32  `json:"total"`
	// Level and Reason are those of its worst trouble.
	Level  string `json:"level,omitempty"`
	Reason string `json:"reason,omitempty"`
}

func poolsOf(s view.Snapshot) List[Pool] {
	l := List[Pool]{Rows: []Pool{}, All: len(s.Deployments)}
	for _, d := range s.Deployments {
		p := Pool{
			Namespace: d.Namespace, Name: d.Name, Desired: d.Spec.Replicas, Available: d.Status.AvailableReplicas, Total: d.Status.Replicas,
		}
		for _, t := range view.DeploymentTroubles(d, s.Now) {
			if levelOf(t.Level) > levelOf(view.Level(p.Level)) {
				p.Level, p.Reason = string(t.Level), bounded.Text(t.Reason, mostNote)
			}
		}
		l.Rows = append(l.Rows, p)
	}
	slices.SortFunc(l.Rows, func(a, b Pool) int { return compareNames(a.Namespace, a.Name, b.Namespace, b.Name) })
	l.Rows = l.Rows[:min(len(l.Rows), mostPools)]
	return l
}

// Rollout is a rollout that is not done, or has failed.
type Rollout struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Failed    bool   `json:"failed,omitempty"`
	Paused    bool   `json:"paused,omitempty"`
	Text      string `json:"text"`
	Stalled   string `json:"stalled,omitempty"`
	Since     int64  `json:"since,omitempty"`
	Desired   int32  `json:"desired"`
	Total     int32  `json:"total"`
	Updated   int32  `json:"updated"`
	Available int32  `json:"available"`
}

func rolloutsOf(s view.Snapshot) List[Rollout] {
	sets := map[types.UID][]*v1alpha1.MachineSet{}
	for _, set := range s.Sets {
		if c := metav1.GetControllerOfNoCopy(set); c != nil {
			sets[c.UID] = append(sets[c.UID], set)
		}
	}
	var all []view.Rollout
	for _, d := range s.Deployments {
		// Machines that are not available have no rollout, unless their template is new.
		if r := view.RolloutOf(d, sets[d.UID]); r.Failed || r.UnderWay && !r.Done {
			all = append(all, r)
		}
	}
	rank := func(r view.Rollout) int {
		switch {
		case r.Failed:
			return 0
		case r.Stalled != "":
			return 1
		}
		return 2
	}
	slices.SortFunc(all, func(a, b view.Rollout) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), compareNames(a.Namespace, a.Name, b.Namespace, b.Name))
	})
	return listOf(all, func(r view.Rollout) Rollout {
		text := strings.TrimPrefix(r.Text, "machinedeployment "+r.Name+": ") // its row has the name
		return Rollout{
			Namespace: r.Namespace, Name: r.Name, Failed: r.Failed, Paused: r.Paused, Text: bounded.Text(text, mostText),
			Stalled: bounded.Text(r.Stalled, mostText), Since: seconds(r.Since), Desired: r.Desired, Total: r.Total, Updated: r.Updated,
			Available: r.Available,
		}
	})
}

// Deletion is a deletion: one that the replica has a receipt of, one of a machine that is being
// deleted now, or one of a machine that has ended while the page was open.
type Deletion struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Rule is why, and Evidence what it was applied to; "" where neither is known.
	Rule     string `json:"rule,omitempty"`
	Evidence string `json:"evidence,omitempty"`
	// Result is "started", "unknown" for a request without an answer, "deleting" or "gone".
	Result string `json:"result"`
	At     int64  `json:"at"`
	By     string `json:"by,omitempty"`
}

// deletionsOf returns the latest deletions. A machine has one row: that of its end, else that of
// its receipt, else that of what is known while it is being deleted.
func deletionsOf(in Input) List[Deletion] {
	all, known := []Deletion{}, map[types.UID]bool{}
	by := map[types.UID]receipt.By{}
	for _, r := range in.Receipts {
		by[r.UID] = r.By
	}
	row := func(d view.Deletion, result string, at int64) {
		if known[d.UID] {
			return
		}
		known[d.UID] = true
		all = append(all, Deletion{
			Kind: view.KindMachine, Namespace: d.Namespace, Name: d.Name, Rule: string(d.Rule), Evidence: bounded.Text(d.Evidence, mostText),
			Result: result, At: at, By: by[d.UID].Replica,
		})
	}
	for _, g := range in.Gone {
		row(g.Deletion, "gone", seconds(g.At))
	}
	for _, r := range in.Receipts {
		if r.UID != "" && known[r.UID] {
			continue
		}
		known[r.UID] = r.UID != ""
		result := "started"
		if r.Outcome == receipt.Unknown {
			result = "unknown"
		}
		all = append(all, Deletion{
			Kind: string(r.Kind), Namespace: r.Namespace, Name: bounded.Text(cmp.Or(r.Name, r.ProviderID), mostText), Rule: string(r.Rule),
			Evidence: bounded.Text(r.Evidence, mostText), Result: result, At: seconds(r.Time), By: r.Replica,
		})
	}
	for _, d := range view.DeletionsOf(in.Snapshot) {
		row(d, "deleting", seconds(d.Since))
	}
	slices.SortStableFunc(all, func(a, b Deletion) int { return cmp.Compare(b.At, a.At) })
	return listOf(all, func(d Deletion) Deletion { return d })
}
