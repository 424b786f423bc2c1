package lifecycle

import (
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
)

func TestVerdictsHaveAReason(t *testing.T) {
	written := &v1alpha1.Machine{Status: v1alpha1.MachineStatus{CurrentStatus: v1alpha1.CurrentStatus{Phase: v1alpha1.MachineFailed}}}
	for name, tc := range map[string]struct {
		verdict Verdict
		want    string
	}{
		"an action": {do(CreateVM), "the cloud has no VM of the machine"},
		"a deletion": {
			Verdict{Do: DeleteVM, Why: receipt.Because(receipt.ScaledDown, "3 machines for 2 replicas")}, "ScaledDown: 3 machines for 2 replicas",
		},
		"a quoted message": {
			Verdict{Do: DeleteVM, Why: receipt.Because(receipt.CreationFailed, "the cloud repeats the user data")}, "CreationFailed",
		},
		"an Event": {
			Verdict{Do: Rest, Machine: written}.with(v1alpha1.EventCreateFailed, "the cloud repeats the user data"), "CreateFailed; phase Failed",
		},
		"a wait for": {Verdict{Do: Rest, Waiting: "a drain"}, "it waits for a drain"},
		"a wait":     {rest(1500 * time.Millisecond), "there is nothing to do until something happens; decided again in 1.5s"},
	} {
		if _, got := tc.verdict.Reason(); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	for _, action := range []Action{
		Rest, Save, ReadSecret, ReadConfig, AddFinalizers, FindVM, CheckFields, CreateToken, ProlongToken, DropToken, CreateVM, InitializeVM,
		DeleteVM, FindNode, FindNodeClaims, FindVMClaims, ClaimNode, PatchNode, DrainPreserved, DrainForUpdate, SetTerminating, DrainNode,
		DeleteNode, DeleteMachine,
	} {
		if _, why := do(action).Reason(); why == "" {
			t.Errorf("%s has no reason", action)
		}
	}
}
