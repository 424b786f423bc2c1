package lifecycle

import (
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/drain"
)

// AwaitsSecrets says that a machine that rests as the verdict has it goes on at once when the data of its class' secrets
// changes: what it needs of them is not there, or the cloud has failed with them and is left alone for a while.
func AwaitsSecrets(w World, v Verdict) bool {
	if v.Machine != nil {
		w.Machine = v.Machine
	}
	m := w.Machine
	isDeleted := m.DeletionTimestamp != nil
	switch {
	case v.Do != Rest, !w.Secret.Read, !hasFinalizer(m):
		return false
	case isDeleted && (m.Status.CurrentStatus.Phase != v1alpha1.MachineTerminating || w.Drain.State == drain.Draining):
		return false // its VM is not to go yet
	case !isDeleted && !isBeingMade(w):
		return false
	case w.Secret.Missing != "", !isDeleted && len(w.Secret.UserData) == 0:
		return true
	}
	_, wait := waiting(w)
	return wait
}
