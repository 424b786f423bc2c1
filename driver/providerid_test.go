package driver

import (
	"strings"
	"testing"
)

// vmID is a provider ID with one form, and armID the one that cloud-provider-azure gives the Node
// of a VM "m".
const (
	vmID  = "cloud:///zone/i-1"
	armID = "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/m"
)

func TestSameVM(t *testing.T) {
	for _, tc := range []struct {
		machine, node string
		want          bool
	}{
		{vmID, vmID, true},
		{"aws:///eu-west-1/i-1", "aws:///eu-west-1/i-1", true},
		{"aws:///eu-west-1/i-1", "aws:///eu-west-1c/i-1", true},
		{"aws:///us-west-2/i-1", "aws:///us-west-2-lax-1a/i-1", true},
		{"aws:///eu-west-1c/i-1", "aws:///eu-west-1c/i-1", true},
		{"aws:///eu-west-1c/i-1", "aws:///eu-west-1/i-1", false},
		{"aws:///eu-west-1/i-1", "aws:///eu-west-1c/i-2", false},
		{"aws:///eu-west-1/i-1", "aws:///eu-west-2c/i-1", false},
		{"aws:///eu-west-1/i-1", "aws:///eu-west-1c/x/i-1", false},
		{"aws:////i-1", "aws:///eu-west-1c/i-1", false},
		{"aws:///i-1", "aws:///i-1", true},
		{"eu-west-1/i-1", "aws:///eu-west-1c/i-1", false},
		{"aws:///eu-west-1/i-1", "eu-west-1c/i-1", false},
		{armID, armID, true},
		{"azure:///westeurope/m", armID, true},
		{"azure:///westeurope/M", armID, true},
		{"azure:///westeurope/m", "azure:///subscriptions/s/resourcegroups/g/providers/microsoft.compute/virtualmachines/m", true},
		{"azure:///westeurope/other", armID, false},
		{"azure:////m", armID, false},
		{"azure:///westeurope/", "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/", false},
		{"azure:///a/b/m", armID, false},
		{"azure:///westeurope/m", "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/m", false},
		{
			"azure:///westeurope/m",
			"azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/x/virtualMachines/m", false,
		},
		{"azure:///westeurope/m", "azure:///subscriptions/s/managementGroups/g/providers/Microsoft.Compute/virtualMachines/m", false},
		{"azure:///westeurope/m", "azure:///tenants/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/m", false},
		{"azure:///westeurope/m", armID + "/extensions/e", false},
		{"azure:///westeurope/m", strings.TrimPrefix(armID, azure), false},
		{"westeurope/m", armID, false},
		{"azure:///westeurope", "", false},
		{armID, "azure:///westeurope/m", false},
		{"azure:///westeurope/m", "azure:///northeurope/m", false},
		{"aws:///westeurope/m", armID, false},
		{"aws:///eu-west-1/", "aws:///eu-west-1c/", false},
		{"aws:///eu-west-1", "aws:///eu-west-1c", false},
		{"aws:///eu-west-1/i-1", "", false},
		{"", "aws:///eu-west-1c/i-1", false},
		{"", "", true},
		{"cloud:///eu-west-1/i-1", "cloud:///eu-west-1c/i-1", false},
		{"cloud:///eu-west-1/i-1", "aws:///eu-west-1/i-1", false},
	} {
		if got := SameVM(tc.machine, tc.node); got != tc.want {
			t.Errorf("machine %q, node %q: %t, want %t", tc.machine, tc.node, got, tc.want)
		}
	}
}

// The ID of Machine Controller Manager for Azure is no evidence: the cloud's own ID has to be that
// of the Node as a whole.
func TestIdenticalVM(t *testing.T) {
	for _, tc := range []struct {
		cloud, node string
		want        bool
	}{
		{vmID, vmID, true},
		{armID, armID, true},
		{"aws:///eu-west-1/i-1", "aws:///eu-west-1c/i-1", true},
		{"azure:///westeurope/m", armID, false},
		{"azure:///subscriptions/other/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/m", armID, false},
	} {
		if got := IdenticalVM(tc.cloud, tc.node); got != tc.want {
			t.Errorf("%q and %q: %t, want %t", tc.cloud, tc.node, got, tc.want)
		}
	}
}

func TestMayNameOneVM(t *testing.T) {
	for _, tc := range []struct {
		one, other string
		want       bool
	}{
		{vmID, vmID, true},
		{vmID, "cloud:///other/i-1", false},
		{armID, "azure:///westeurope/m", true},
		{"azure:///westeurope/m", "azure:///elsewhere/M", true},
		{"azure:///westeurope/m", "azure:///westeurope/n", false},
		{"aws:///eu-west-1/i-1", "aws:///us-east-1/i-1", true},
		{"aws:///eu-west-1/i-1", "aws:///eu-west-1/i-2", false},
		{"aws:///eu-west-1/m", "azure:///westeurope/m", false},
		{"", vmID, false},
	} {
		if MayNameOneVM(tc.one, tc.other) != tc.want || MayNameOneVM(tc.other, tc.one) != tc.want {
			t.Errorf("%q and %q: want %t", tc.one, tc.other, tc.want)
		}
	}
}
