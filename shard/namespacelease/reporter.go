package namespacelease

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// Reporter reports namespaces that another holder keeps the fleet out of: its method is Refused of
// Config. All fields are required.
type Reporter struct {
	Events events.EventRecorder
	// Holds reports whether this replica holds a slot.
	Holds func(slot int) bool
	// Roots returns the roots in a namespace that this replica knows.
	Roots func(namespace string) []corev1.ObjectReference
	// SlotOf returns the slot of a root.
	SlotOf func(namespace, name string) int
}

// Refused emits an Event on each root of the slot in the namespace that is not among the known
// ones, and returns all of them. It logs the other holder the first time. While another replica
// holds the slot it does nothing, and returns known.
func (r *Reporter) Refused(refused Key, other string, known map[types.UID]bool) map[types.UID]bool {
	if !r.Holds(refused.Slot) {
		return known
	}
	if known == nil {
		klog.Background().Error(nil, "Namespace is controlled by another manager",
			"namespace", refused.Namespace, "slot", refused.Slot, "holder", other)
	}
	roots := map[types.UID]bool{}
	refs := r.Roots(refused.Namespace)
	for i := range refs {
		if r.SlotOf(refs[i].Namespace, refs[i].Name) != refused.Slot {
			continue
		}
		roots[refs[i].UID] = true
		if !known[refs[i].UID] {
			telemetry.EmitUnlogged(r.Events, &refs[i], v1alpha1.EventNotAlone,
				"The namespace is not served: "+other+" holds the Leases "+v1alpha1.LeaseManager+" and "+v1alpha1.LeaseMachineController+
					" there; stop it and wait 15 s, or keep the fleet out with --namespace")
		}
	}
	return roots
}
