package model_test

import (
	"strconv"
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/page/model"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/page/pagetest"
)

// TestMachinesOfReplicasAreCounted: weights of slots, which sessions report, are other numbers. One
// slot has no holder, and one a holder with another session than the replica has now.
func TestMachinesOfReplicasAreCounted(t *testing.T) {
	in := pagetest.NewWorld(10, now).Read()
	for i, slot := range []string{"0", "3", "3", "1", "200", "4", "", "none", "1000", "2"} {
		in.Machines[i].Labels = map[string]string{v1alpha1.LabelSlot: slot}
	}
	other := "fleet-1_bbbbb"
	for _, l := range in.Leases {
		if l.Name == "fleet-slot-004" {
			l.Spec.HolderIdentity = &other
		}
	}
	f := model.Of(in).Fleet
	got := map[string]int{}
	for _, r := range f.Replicas {
		got[r.Name] = r.Machines
	}
	for i, want := range []int{3, 1, 1, 0} {
		if name := "fleet-" + strconv.Itoa(i); got[name] != want {
			t.Errorf("%s has %d machines, want %d", name, got[name], want)
		}
	}
	if f.Slots[3].Machines != 2 || f.Slots[200].Machines != 1 || f.Slots[5].Machines != 0 {
		t.Errorf("slots 3, 200 and 5 have %d, %d and %d machines, want 2, 1 and 0",
			f.Slots[3].Machines, f.Slots[200].Machines, f.Slots[5].Machines)
	}
}
