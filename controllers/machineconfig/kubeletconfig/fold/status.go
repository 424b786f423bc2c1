package fold

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
)

// Reasons of the condition Accepted.
const (
	// ReasonApplied means that the settings are in a MachineConfig of each selected pool.
	ReasonApplied = "Applied"
	// ReasonInvalid means that the settings are invalid, alone or in one of the pools.
	ReasonInvalid = "Invalid"
	// ReasonSelectsNothing means that no pool is selected.
	ReasonSelectsNothing = "SelectsNoPool"
)

// Status returns the status of a KubeletConfig whose results in its pools are known.
func Status(now time.Time, c *v1alpha1.KubeletConfig, pools []v1alpha1.KubeletConfigPoolStatus) v1alpha1.KubeletConfigStatus {
	status := *c.Status.DeepCopy()
	status.ObservedGeneration = c.Generation
	status.Pools = slices.Clone(pools)
	slices.SortFunc(status.Pools, func(a, b v1alpha1.KubeletConfigPoolStatus) int { return cmp.Compare(a.Name, b.Name) })
	accepted := metav1.Condition{
		Type: v1alpha1.KubeletConfigAccepted, Status: metav1.ConditionFalse, Reason: ReasonInvalid,
		LastTransitionTime: metav1.NewTime(now), ObservedGeneration: c.Generation,
	}
	failed := slices.IndexFunc(status.Pools, func(p v1alpha1.KubeletConfigPoolStatus) bool { return p.Message != "" })
	switch err := Check(c); {
	case err != nil:
		accepted.Message = err.Error()
	case len(pools) == 0:
		accepted.Reason, accepted.Message = ReasonSelectsNothing,
			"spec.machineConfigPoolSelector matches no MachineConfigPool. Label one, or correct the selector."
	case failed >= 0:
		accepted.Message = "In pool " + status.Pools[failed].Name + ": " + status.Pools[failed].Message
	default:
		accepted.Status, accepted.Reason, accepted.Message = metav1.ConditionTrue, ReasonApplied,
			"The settings are in the generated MachineConfigs of all selected pools."
	}
	accepted.Message = bounded.Text(accepted.Message, bounded.Message)
	meta.SetStatusCondition(&status.Conditions, accepted)
	return status
}
