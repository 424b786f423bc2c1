package lifecycle

import "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"

// awaitSetUp keeps a machine that has failed before its Node joined from recovering while its VM is not set up; wait is false when
// the VM is, or nothing is known to be missing. Its Node can be healthy all the same, and lack what InitializeMachine does, such as
// routes for its pods. The cloud is asked, since a machine does not record which of the calls has failed.
func awaitSetUp(w World, m *v1alpha1.Machine) (v Verdict, wait bool) {
	if m.Status.CurrentStatus.Phase != v1alpha1.MachineFailed || !neverJoined(m) {
		return Verdict{}, false
	}
	switch w.VM.State {
	case VMUninitialized: // and it stays so: nothing is made for a machine that has failed
		return Verdict{Do: Rest, Machine: m}, true
	case VMUnknown:
	case VMAbsent, VMPresent, VMEnding, VMHidden:
		return Verdict{}, false
	}
	switch _, missing := missingForCloud(w); {
	case missing != "" || w.Failure != nil:
		return Verdict{Do: Rest, Machine: m, Wake: ownerRetry}, true
	case !w.Secret.Read:
		return do(ReadSecret), true
	}
	return do(FindVM), true
}
