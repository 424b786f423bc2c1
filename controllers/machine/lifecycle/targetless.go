package lifecycle

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// decideTargetless follows a machine that becomes no Node: when its VM is recorded, it is done.
func decideTargetless(w World) Verdict {
	if w.Machine.Status.CurrentStatus.Phase != v1alpha1.MachinePending {
		return rest(0)
	}
	m := w.Machine.DeepCopy() // it has waited for its Node while there was a target cluster
	becomeAvailable(w, m)
	return Verdict{Do: Rest, Machine: m}
}

// recordTargetless records the VM that exists now, with its addresses, which no Node has.
func recordTargetless(w World, m *v1alpha1.Machine) Verdict {
	addresses := slices.Clone(w.VM.Addresses)
	if name := w.VM.NodeName; name != "" {
		addresses = append(addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: name})
	}
	m.Status.Addresses = joinAddresses(addresses)
	endBackoff(m)
	becomeAvailable(w, m)
	return Verdict{Do: Save, Machine: m}.with(v1alpha1.EventCreated, fmt.Sprintf("VM %s exists and is set up; there is no target cluster to join", m.Spec.ProviderID))
}

func becomeAvailable(w World, m *v1alpha1.Machine) {
	setPhase(w, m, v1alpha1.MachineAvailable, false)
	setOperation(w, m, v1alpha1.LastOperation{
		Type: v1alpha1.MachineOperationCreate, State: v1alpha1.MachineStateSuccessful, Description: "Created machine on cloud provider",
	})
}

// joinAddresses sorts addresses and leaves out duplicates.
func joinAddresses(addresses []corev1.NodeAddress) []corev1.NodeAddress {
	sorted := slices.SortedFunc(slices.Values(addresses), func(a, b corev1.NodeAddress) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Address, b.Address))
	})
	return slices.Compact(sorted)
}
