package lifecycle

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// A VM without UID counts after a live list has shown no other Machine that claims it, and not
// before.
func TestMayAdopt(t *testing.T) {
	for name, tc := range map[string]struct {
		adopting, read, found, want bool
	}{
		"nothing is known":            {},
		"no other claims it":          {read: true, want: true},
		"another claims it":           {read: true, found: true},
		"another claims it, unread":   {found: true},
		"it was adopted in this life": {adopting: true, want: true},
	} {
		w := World{}
		w.VM.Adopting, w.VMClaims.Read, w.VMClaims.Found = tc.adopting, tc.read, tc.found
		if got := MayAdopt(w); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}

// That this process has created a VM shows to which machine a Node of that VM belongs, and nothing
// about a Node without a provider ID.
func TestWhatACreatedVMProves(t *testing.T) {
	const created = "cloud:///i-1"
	for name, tc := range map[string]struct {
		node, tied, proven string
		owns               bool
		toFind             Action
	}{
		"its Node":                        {node: created, proven: created, owns: true},
		"its Node, created by another":    {node: created, toFind: FindVM},
		"a Node of its name, without VM":  {tied: "m", proven: created, toFind: FindNodeClaims},
		"such a Node, created by another": {tied: "m", toFind: FindNodeClaims},
		"a Node without name, without VM": {proven: created},
		"a Node of another VM":            {node: "cloud:///i-2", proven: created},
	} {
		m := &v1alpha1.Machine{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m", UID: "u"}, Spec: v1alpha1.MachineSpec{ProviderID: created},
		}
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{v1alpha1.LabelMachineName: tc.tied}},
			Spec:       corev1.NodeSpec{ProviderID: tc.node},
		}
		w := World{Machine: m, Proven: tc.proven}
		w.Node.State, w.Node.Node = NodePresent, node
		owns, toFind := ownsNode(w, m)
		if owns != tc.owns || toFind != tc.toFind {
			t.Errorf("%s: owns %t, to find %q; want %t, %q", name, owns, toFind, tc.owns, tc.toFind)
		}
		if want := !tc.owns && tc.toFind == ""; isForeign(w, m) != want {
			t.Errorf("%s: foreign %t, want %t", name, !want, want)
		}
	}
}

// Where provider IDs have several forms, the Node is the Machine's when the cloud has returned that
// of the Node for a VM of the Machine. At Azure a Machine that Machine Controller Manager has
// created names its VM by location and name, and a VM of that name in another resource group is no
// evidence. At AWS a Node has the zone of its VM, and the cloud returns the region.
func TestWhatProvesANodeWhoseIDHasOtherForms(t *testing.T) {
	const (
		arm          = "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/m"
		another      = "azure:///subscriptions/s/resourceGroups/attacker/providers/Microsoft.Compute/virtualMachines/m"
		region, zone = "aws:///eu-west-1/i-1", "aws:///eu-west-1a/i-1"
	)
	for name, tc := range map[string]struct {
		node, machine, proven string
		owns                  bool
		toFind                Action
	}{
		"Azure was not asked":             {node: arm, machine: "azure:///westeurope/m", toFind: FindVM},
		"Azure has returned the ID":       {node: arm, machine: "azure:///westeurope/m", proven: arm, owns: true},
		"Azure has returned another VM's": {node: arm, machine: "azure:///westeurope/m", proven: another, toFind: FindVM},
		"a driver has returned the short form": {
			node: arm, machine: "azure:///westeurope/m", proven: "azure:///westeurope/m", toFind: FindVM,
		},
		"the Machine names another VM of Azure":      {node: arm, machine: "azure:///westeurope/n", proven: arm},
		"the Machine has the ID of Azure":            {node: arm, machine: arm, proven: arm, owns: true},
		"AWS was not asked":                          {node: zone, machine: region, toFind: FindVM},
		"AWS has returned the ID":                    {node: zone, machine: region, proven: region, owns: true},
		"AWS has, and the Machine has the zone":      {node: zone, machine: zone, proven: region, owns: true},
		"AWS has returned another VM's":              {node: zone, machine: region, proven: "aws:///eu-west-1/i-2", toFind: FindVM},
		"AWS has returned that of a VM of elsewhere": {node: zone, machine: region, proven: "aws:///eu-west-2/i-1", toFind: FindVM},
		"the Machine names another VM of AWS":        {node: zone, machine: "aws:///eu-west-1/i-2", proven: region},
	} {
		m := &v1alpha1.Machine{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m", UID: "u"}, Spec: v1alpha1.MachineSpec{ProviderID: tc.machine},
		}
		w := World{Machine: m, Proven: tc.proven}
		w.Node.State, w.Node.Node = NodePresent, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: corev1.NodeSpec{ProviderID: tc.node},
		}
		if owns, toFind := ownsNode(w, m); owns != tc.owns || toFind != tc.toFind {
			t.Errorf("%s: owns %t, to find %q; want %t, %q", name, owns, toFind, tc.owns, tc.toFind)
		}
	}
}
