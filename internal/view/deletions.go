package view

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// Deletion is a machine that is being deleted.
type Deletion struct {
	Object

	UID types.UID `json:"-"`
	// Since is when its deletion was requested.
	Since time.Time `json:"since"`
	// Reason is why its MachineSet has recorded it for deletion; the zero one if that has not.
	receipt.Reason
	// Doing is the last report of the fleet.
	Doing string `json:"doing,omitempty"`
}

// DeletionsOf returns the machines of a snapshot that are being deleted, the latest first.
func DeletionsOf(s Snapshot) []Deletion {
	sets := map[types.UID]*v1alpha1.MachineSet{}
	for _, set := range s.Sets {
		sets[set.UID] = set
	}
	intents := map[types.UID]machinefacts.Intents{}
	all := []Deletion{}
	for _, m := range s.Machines {
		if m.DeletionTimestamp == nil {
			continue
		}
		owner := controllerOf(m)
		in, known := intents[owner]
		if set := sets[owner]; !known && set != nil {
			in, _ = machinefacts.ReadIntents(set) // an annotation that does not decode has no reason
			intents[owner] = in
		}
		why, _ := in.Reason(m.UID)
		all = append(all, Deletion{
			Object: objectOf(KindMachine, m), UID: m.UID, Since: m.DeletionTimestamp.Time, Reason: why, Doing: m.Status.LastOperation.Description,
		})
	}
	slices.SortFunc(all, func(a, b Deletion) int {
		return cmp.Or(b.Since.Compare(a.Since), compareObjects(a.Object, b.Object))
	})
	return all
}

// Draining is a drain that the fleet has reported on a machine.
type Draining struct {
	Object

	Node string `json:"node"`
	// Why is "deletion", or "update" of a Node in place, or "preservation".
	Why   string    `json:"why"`
	Since time.Time `json:"since,omitzero"`
	// Forced is when the drain is ended by force; zero if that is not known.
	Forced time.Time `json:"forced,omitzero"`
	// Blocked reports whether it makes no progress.
	Blocked bool `json:"blocked"`
	// Report names the pods that are left, and what holds them.
	Report string `json:"report"`
}

// DrainingOf returns the drains that the machines of a snapshot report, blocked ones first, and of
// these the oldest.
func DrainingOf(s Snapshot) []Draining {
	settings := drain.Settings{Timeout: s.Timeouts.Drain, MaxEvictRetries: s.Timeouts.MaxEvictRetries}
	all := []Draining{}
	for _, m := range s.Machines {
		last := m.Status.LastOperation
		isDrain := last.Type == v1alpha1.MachineOperationDrainNode ||
			last.Type == v1alpha1.MachineOperationDelete && drain.IsReport(last.Description)
		if !isDrain || last.State == v1alpha1.MachineStateSuccessful {
			continue
		}
		d := Draining{
			Object: objectOf(KindMachine, m), Node: m.Labels[v1alpha1.LabelNode], Blocked: last.State == v1alpha1.MachineStateFailed,
			Report: last.Description, Why: "update",
		}
		switch {
		case m.DeletionTimestamp != nil:
			order := drain.ForDeletion(m, settings)
			d.Why, d.Since, d.Forced = "deletion", order.Since, order.Since.Add(order.Timeout)
		case machinefacts.IsPreservedFailed(m, s.Now):
			order := drain.ForPreservation(m, settings)
			d.Why, d.Since, d.Forced = "preservation", order.Since, order.Since.Add(order.Timeout)
		}
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b Draining) int {
		if a.Blocked != b.Blocked {
			if a.Blocked {
				return -1
			}
			return 1
		}
		return cmp.Or(a.Since.Compare(b.Since), compareObjects(a.Object, b.Object))
	})
	return all
}
