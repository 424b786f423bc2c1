package namespacelease

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// Reporter reports namespaces that are not served: its method is Refused of Config. All fields are
// required.
type Reporter struct {
	Events events.EventRecorder
	// Holds reports whether this replica holds a slot.
	Holds func(slot int) bool
	// Roots returns the roots in a namespace that this replica knows, and that are in a slot.
	Roots func(namespace string, slot int) []corev1.ObjectReference
}

// Refused emits an Event on each root of the slot in the namespace that is not among the known
// ones, and returns all of them. It logs the reason the first time. While another replica holds the
// slot it does nothing, and returns known.
func (r *Reporter) Refused(refused Key, why Refusal, known map[types.UID]bool) map[types.UID]bool {
	if !r.Holds(refused.Slot) {
		return known
	}
	event := v1alpha1.EventNotAlone
	message := "The namespace is not served: " + why.Other + " holds the Leases " + v1alpha1.LeaseManager + " and " +
		v1alpha1.LeaseMachineController +
		" there; stop it and wait 15 s, or keep the fleet out with --namespace"
	if why.Unselected {
		event = v1alpha1.EventNotSelected
		message = "The namespace is not served: its labels do not match the --namespace-selector of this fleet, " +
			"and no other manager holds the Leases " +
			v1alpha1.LeaseManager + " and " + v1alpha1.LeaseMachineController + " there; label the namespace for one of the fleets"
	}
	if log := klog.Background(); known == nil && why.Unselected {
		log.Error(nil, "Namespace is selected by no fleet", "namespace", refused.Namespace, "slot", refused.Slot)
	} else if known == nil {
		log.Error(nil, "Namespace is controlled by another manager", "namespace", refused.Namespace, "slot", refused.Slot, "holder", why.Other)
	}
	roots := map[types.UID]bool{}
	refs := r.Roots(refused.Namespace, refused.Slot)
	for i := range refs {
		roots[refs[i].UID] = true
		if !known[refs[i].UID] {
			telemetry.EmitUnlogged(r.Events, &refs[i], event, message)
		}
	}
	return roots
}
