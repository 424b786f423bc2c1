package lifecycle

import (
	"fmt"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
)

// missingSecret returns the code and the text for w.Secret.Missing. advice says what to do about
// one of the class' own namespace.
func missingSecret(w World, advice string) (driver.Code, string) {
	class, namespace := w.Machine.Spec.Class.Name, w.Machine.Namespace
	if w.Secret.Foreign {
		return driver.PermissionDenied, fmt.Sprintf(
			"MachineClass %q may not use Secret %q, which is not in its namespace; keep the Secret in namespace %q, "+
				"or name %q in the Secret's annotation %s",
			class, w.Secret.Missing, namespace, namespace, v1alpha1.AnnotationSharedWith)
	}
	return driver.NotFound, fmt.Sprintf("Secret %q, which MachineClass %q names, does not exist%s", w.Secret.Missing, class, advice)
}

// AwaitsSecrets reports whether a machine with a verdict that rests continues at once when the data
// of its class' secrets changes: they lack what it needs, or the cloud has failed with them and is
// not asked for a while.
func AwaitsSecrets(w World, v Verdict) bool {
	if v.Machine != nil {
		w.Machine = v.Machine
	}
	m := w.Machine
	isDeleted := m.DeletionTimestamp != nil
	switch {
	case !w.Secret.Read, !hasFinalizer(m):
		return false
	case isDeleted && (m.Status.CurrentStatus.Phase != v1alpha1.MachineTerminating || w.Drain.State == drain.Draining):
		return false // its VM must not be deleted yet
	case !isDeleted && !isBeingCreated(w):
		return false
	case w.Secret.Missing != "", !isDeleted && len(w.Secret.UserData) == 0, !isDeleted && userDataSize(w) > driver.MaxUserData,
		!isDeleted && w.Config.Problem != "":
		return true
	}
	_, wait := waiting(w)
	return wait
}
