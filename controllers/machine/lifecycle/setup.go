package lifecycle

import "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"

// checkSetUp decides when the machine has failed before its Node joined, the Node is healthy, and
// the VM is not set up: such a machine does not recover. Its Node lacks what InitializeMachine
// does, such as routes for its pods. The cloud is asked, since a machine does not record which of
// the calls has failed.
func checkSetUp(w World) (v Verdict, decided bool) {
	if !isHealthy(w) || w.Machine.Status.CurrentStatus.Phase != v1alpha1.MachineFailed || !neverJoined(w.Machine) {
		return Verdict{}, false
	}
	switch w.VM.State {
	case VMUninitialized: // it remains so: nothing is created for a machine that has failed
		v = Verdict{Do: Rest, Machine: observed(w)}
		if w.VM.Invalid != "" { // whether it is, the driver has not shown
			v.Wake, v.Waiting = ownerRetry, aboutVM
		}
		return v, true
	case VMUnknown:
	case VMAbsent, VMPresent, VMEnding, VMHidden:
		return Verdict{}, false
	}
	switch _, missing := missingForCloud(w); {
	case missing != "" || w.Failure != nil:
		return Verdict{Do: Rest, Machine: observed(w), Wake: ownerRetry, Waiting: aboutVM}, true
	case !w.Secret.Read:
		return do(ReadSecret), true
	}
	return do(FindVM), true
}
