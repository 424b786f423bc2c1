package lifecycle

import (
	"fmt"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/nodeowner"
)

// ownerRetry is the wait before the cloud is asked again whose the VM of a Node is.
const ownerRetry = 30 * time.Second

// MayAdopt reports whether a VM without any UID that the machine's provider ID names counts as the
// machine's.
func MayAdopt(w World) bool { return w.VM.Adopting || w.VMClaims.Read && !w.VMClaims.Found }

// ownsNode reports whether the Node that is there is the machine's. toFind names what has to be
// found out first; "" when it is known.
func ownsNode(w World, m *v1alpha1.Machine) (owns bool, toFind Action) {
	if w.Node.State != NodePresent {
		return false, ""
	}
	relation := nodeowner.Relate(m, w.Node.Node)
	switch {
	case relation == nodeowner.Own:
		return true, ""
	case relation == nodeowner.Foreign:
		return false, ""
	case w.Proven != "" && driver.IdenticalVM(w.Proven, w.Node.Node.Spec.ProviderID): // the machine names that VM: the Node is not Foreign
		return true, ""
	case relation == nodeowner.Unproven && w.VM.State == VMUnknown:
		return false, FindVM
	case relation == nodeowner.Unproven: // a driver that cannot look for VMs proves nothing, and a list of machines does not either
		return false, adoptVM(w, FindVM)
	case !w.NodeClaims.Read:
		return false, FindNodeClaims
	}
	return !w.NodeClaims.Found, ""
}

// adoptVM returns what to do about a VM that the provider ID names and that has not the machine's
// UID; "" when there is nothing to do. Machine Controller Manager gives VMs no UID. again is what
// asks the cloud once more, and has such a VM count.
func adoptVM(w World, again Action) Action {
	switch {
	case !w.VM.Left || w.VM.Adopting || w.VMClaims.Found:
		return ""
	case !w.VMClaims.Read:
		return FindVMClaims
	}
	return again
}

// isForeign reports whether the Node that is there is not the machine's.
func isForeign(w World, m *v1alpha1.Machine) bool {
	owns, toFind := ownsNode(w, m)
	return w.Node.State == NodePresent && !owns && toFind == ""
}

// findOwner finds out whether the Node that has joined is the machine's; wait is false when that is
// known. Until the cloud has shown it, the machine has no Node.
func findOwner(w World) (v Verdict, wait bool) {
	owns, toFind := ownsNode(w, w.Machine)
	_, missing := missingForCloud(w)
	switch {
	case owns || toFind == "" && w.VM.Invalid == "":
		return Verdict{}, false
	case toFind == "":
		missing = cloudMessage(driver.Internal, w.VM.Invalid)
	case toFind != FindVM:
		return do(toFind), true
	case w.Failure != nil:
		missing = cloudMessage(w.Failure.Code, w.Failure.Message)
	}
	switch {
	case missing != "":
		m := w.Machine.DeepCopy()
		v := wakeAt(w, waitForNode(w, m), w.Now.Add(ownerRetry))
		v.Waiting = aboutVM
		if m.Status.CurrentStatus.Phase == v1alpha1.MachinePending {
			m.Status.LastOperation.Description = fmt.Sprintf("Creating machine on cloud provider: Node %q has joined, "+
				"and is not claimed until the cloud confirms that its VM, %s, is this machine's: %s",
				w.Node.Node.Name, w.Machine.Spec.ProviderID, missing)
		}
		return v, true
	case !w.Secret.Read:
		return do(ReadSecret), true
	}
	return do(FindVM), true
}

// notOwned returns the Node and the VM that the machine names and that are not its own, as text.
func notOwned(w World) string {
	var text string
	if isForeign(w, w.Machine) {
		text = fmt.Sprintf("; Node %q is left alone: it is not this machine's", w.Node.Node.Name)
	}
	if w.VM.Left {
		text += fmt.Sprintf("; VM %s is left alone: it does not have the UID of this machine", w.Machine.Spec.ProviderID)
	}
	return text
}
