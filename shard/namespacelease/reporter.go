package namespacelease

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/telemetry"
)

// Reporter reports namespaces that another holder keeps the fleet out of: its method is Refused of Config. All fields are required.
type Reporter struct {
	Events events.EventRecorder
	// Holds reports whether this replica holds a slot.
	Holds func(slot int) bool
	// Roots returns the roots in a namespace that this replica knows.
	Roots func(namespace string) []corev1.ObjectReference
	// SlotOf returns the slot of a root.
	SlotOf func(namespace, name string) int
}

// Refused logs the other holder, and emits an Event on each root of the slot in the namespace, if this replica holds the slot.
func (r *Reporter) Refused(refused Key, other string) {
	if !r.Holds(refused.Slot) {
		return
	}
	klog.Background().Info("Namespace is controlled by another manager",
		"namespace", refused.Namespace, "slot", refused.Slot, "holder", other)
	refs := r.Roots(refused.Namespace)
	for i := range refs {
		if r.SlotOf(refs[i].Namespace, refs[i].Name) == refused.Slot {
			telemetry.EmitUnlogged(r.Events, &refs[i], v1alpha1.EventNotAlone,
				"The namespace is not served: "+other+" holds the Leases "+v1alpha1.LeaseManager+" and "+v1alpha1.LeaseMachineController+
					" there; stop it and wait 15 s, or keep the fleet out with --namespace")
		}
	}
}
