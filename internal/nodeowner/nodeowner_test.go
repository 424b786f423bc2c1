package nodeowner

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

const vm = "cloud:///zone/i-1"

// armID is the provider ID that cloud-provider-azure gives the Node of a VM "m".
const armID = "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/m"

func machine(providerID string) *v1alpha1.Machine {
	return &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m", UID: "u", Labels: map[string]string{v1alpha1.LabelNode: "n"}},
		Spec:       v1alpha1.MachineSpec{ProviderID: providerID},
	}
}

func node(providerID, bound, tied string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{ProviderID: providerID}}
	if bound != "" {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.AnnotationMachine, bound)
	}
	if tied != "" {
		metav1.SetMetaDataLabel(&n.ObjectMeta, v1alpha1.LabelMachineName, tied)
	}
	return n
}

func TestRelate(t *testing.T) {
	names := map[Relation]string{Foreign: "Foreign", Own: "Own", Tied: "Tied", Unproven: "Unproven"}
	for _, tc := range []struct {
		name              string
		machine           string // its provider ID
		node, bound, tied string // its provider ID, the Machine that it is bound to, and the name of a machine on it
		want              Relation
	}{
		{"bound to this machine", vm, vm, "ns/m/u", "m", Own},
		{"bound, and the Node has no provider ID yet", vm, "", "ns/m/u", "m", Own},
		{"bound, and neither has a provider ID", "", "", "ns/m/u", "m", Own},
		{"bound, and the provider ID of the machine was edited", "cloud:///zone/i-2", vm, "ns/m/u", "m", Foreign},
		{"bound, and the provider ID of the machine was removed", "", vm, "ns/m/u", "m", Foreign},
		{"bound by the kubelet of another VM", vm, "cloud:///zone/i-2", "ns/m/u", "m", Foreign},
		{"bound to a machine of another namespace", vm, vm, "other/m/u", "m", Foreign},
		{"bound to a machine of another namespace, without provider ID", vm, "", "other/m/u", "m", Foreign},
		{"bound to another machine of the namespace", vm, vm, "ns/other/u", "m", Foreign},
		{"bound to a machine of that name that was deleted", vm, vm, "ns/m/before", "m", Own},
		{"bound to a machine of that name that was deleted, and the Node has no provider ID yet", vm, "", "ns/m/before", "m", Own},
		{"bound to a machine of that name that was deleted, and the Node is of another VM", vm, "cloud:///zone/i-2", "ns/m/before", "m", Foreign},
		{"bound to a machine of that name that was deleted, and this one has no VM", "", "", "ns/m/before", "m", Foreign},
		{"tied by Machine Controller Manager", vm, vm, "", "m", Tied},
		{"tied by Machine Controller Manager, without provider ID", vm, "", "", "m", Tied},
		{"tied by Machine Controller Manager to another machine", vm, vm, "", "other", Unproven},
		{"tied by Machine Controller Manager, and this one has no VM", "", "", "", "m", Foreign},
		{"bound by an invalid annotation", vm, vm, "ns/m", "m", Tied},
		{"new, and of the machine's VM", vm, vm, "", "", Unproven},
		{"new, and of another VM", vm, "cloud:///zone/i-2", "", "", Foreign},
		{"new, and only the last element of the provider ID is equal", vm, "cloud:///other-zone/i-1", "", "", Foreign},
		{"new, and the machine has no VM yet", "", vm, "", "", Foreign},
		{"of AWS, with the region in the place of the zone", "aws:///eu-west-1/i-1", "aws:///eu-west-1c/i-1", "", "", Unproven},
		{"bound, of AWS, with the region in the place of the zone", "aws:///eu-west-1/i-1", "aws:///eu-west-1c/i-1", "ns/m/u", "m", Own},
		{"tied, of Azure, with the ID of Machine Controller Manager", "azure:///westeurope/m", armID, "", "m", Tied},
		{"new, of Azure, with the ID of Machine Controller Manager", "azure:///westeurope/m", armID, "", "", Unproven},
		{"bound, of Azure, with the ID of Machine Controller Manager", "azure:///westeurope/m", armID, "ns/m/u", "m", Own},
		{"bound to another, of Azure, with the ID of Machine Controller Manager", "azure:///westeurope/m", armID, "other/m/u", "m", Foreign},
		{"tied, of Azure, and another VM", "azure:///westeurope/n", armID, "", "m", Foreign},
		{"without a provider ID, like a Node of a control plane", vm, "", "", "", Foreign},
		{"without a provider ID, like the machine", "", "", "", "", Foreign},
		{"without a provider ID, with the name of another machine", vm, "", "", "other", Foreign},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Relate(machine(tc.machine), node(tc.node, tc.bound, tc.tied)); got != tc.want {
				t.Errorf("%s, want %s", names[got], names[tc.want])
			}
		})
	}
}

func TestIsBound(t *testing.T) {
	for bound, want := range map[string]bool{
		"ns/m/u": true, "other/m/u": false, "ns/other/u": false, "ns/m/v": false, "": false, "ns/m": false, "ns/m/u/v": false, "//u": false,
		"ns/m/": false,
	} {
		if got := IsBound(machine(vm), node(vm, bound, "")); got != want {
			t.Errorf("bound to %q: %t, want %t", bound, got, want)
		}
	}
}

func TestOtherClaimants(t *testing.T) {
	born := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(namespace, name string, uid types.UID, age time.Duration) *v1alpha1.Machine {
		return &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: uid, CreationTimestamp: metav1.NewTime(born.Add(-age)),
		}}
	}
	m, older, same := at("ns", "m", "u", 0), at("older", "m", "a", time.Minute), at("of-the-same-second", "m", "b", 0)
	got := OtherClaimants(m, []*v1alpha1.Machine{
		m, older, same, at("younger", "m", "c", -time.Second), at("older", "of-another-name", "d", time.Minute),
	})
	if want := []*v1alpha1.Machine{older, same}; !slices.Equal(got, want) {
		t.Errorf("claimants %v, want %v", got, want)
	}
}
