package scale

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// whyNamed returns the reason for a machine that the cluster-autoscaler has named, for any number
// of machines.
func whyNamed(w World, m *v1alpha1.Machine) receipt.Reason {
	return receipt.Because(receipt.NamedByAutoscaler, fmt.Sprintf("priority 1 set by a client, marked for deletion at %s; replicas %d",
		w.newest(m).Annotations[v1alpha1.AnnotationMarkedForDeletionTime], w.Set.Spec.Replicas))
}

// whyFailed returns the reason for a machine that has failed, or is outdated, and is replaced.
func whyFailed(w World, m *v1alpha1.Machine) receipt.Reason {
	if isOutdated(w, m) {
		return receipt.Because(receipt.CreationFailed,
			fmt.Sprintf("could not be created from MachineClass %s, the template names MachineClass %s",
				m.Spec.Class.Name, w.Set.Spec.Template.Spec.Class.Name))
	}
	since := m.Status.CurrentStatus.LastUpdateTime
	for _, d := range w.Disruptions {
		if d.UID == m.UID {
			since = d.Since
		}
	}
	last := m.Status.LastOperation
	evidence := fmt.Sprintf("since %s, disruption granted: %s", since.UTC().Format(time.RFC3339), last.Description)
	if last.Type == v1alpha1.MachineOperationHealthCheck {
		return receipt.Because(receipt.Unhealthy, evidence)
	}
	return receipt.Because(receipt.CreationFailed, evidence)
}

// whySurplus returns the reason for a machine that is surplus: of the machines in the order of
// deletion, as many are deleted as replicas lets be deleted, and kept is the first one that is not;
// nil when all are deleted. exist is how many the set has. Why it has more than its replicas only
// the MachineDeployment knows, and records: the numbers are the same where they were lowered, where
// a rollout replaces the machines, and where some were adopted.
func whySurplus(w World, m, kept *v1alpha1.Machine, exist int) receipt.Reason {
	evidence := fmt.Sprintf("%d machines for %d replicas", exist, w.Set.Spec.Replicas)
	if newSet := w.Set.Annotations[v1alpha1.AnnotationReplacedBy]; newSet != "" {
		return receipt.Because(receipt.RolledOut, fmt.Sprintf("rollout to MachineSet %s, %s", newSet, evidence))
	}
	if w.newest(m).Annotations[v1alpha1.AnnotationPriority] == v1alpha1.PriorityTriggered {
		return receipt.Because(receipt.NamedByAutoscaler, "priority 1 set by a client, "+evidence)
	}
	if kept != nil {
		evidence += selectedBy(w, m, kept)
	}
	return receipt.Because(receipt.ScaledDown, evidence)
}

// selectedBy names the rule of the order of deletion by which a machine is deleted before another
// one.
func selectedBy(w World, m, kept *v1alpha1.Machine) string {
	first, second := keyOf(w, m), keyOf(w, kept)
	for _, r := range rules() {
		if r.compare(first, second) != 0 {
			return ", first in the order of deletion by: " + r.name
		}
	}
	return ""
}

// reasons returns why the machines are deleted, as far as that is known.
func reasons(machines []*v1alpha1.Machine, why func(uid types.UID) (is receipt.Reason, known bool)) map[types.UID]receipt.Reason {
	all := make(map[types.UID]receipt.Reason, len(machines))
	for _, m := range machines {
		if is, known := why(m.UID); known {
			all[m.UID] = is
		}
	}
	return all
}

// leaving returns the machines whose intents are observed, because they are being deleted, and
// whose reason is not recorded on them yet. The machine controller reads the reason from the set,
// records it on the machine with the phase Terminating, and may do both after the set's next
// intents are written.
func leaving(w World, in machinefacts.Intents) []machinefacts.Deletion {
	all := slices.DeleteFunc(slices.Concat(in.Leaving, in.Delete), func(d machinefacts.Deletion) bool {
		return !slices.ContainsFunc(w.Owned, func(m *v1alpha1.Machine) bool {
			return m.UID == d.UID && m.DeletionTimestamp != nil && m.Status.CurrentStatus.Phase != v1alpha1.MachineTerminating &&
				!w.Undecodable[m.UID]
		})
	})
	return all[max(len(all)-burst, 0):]
}
