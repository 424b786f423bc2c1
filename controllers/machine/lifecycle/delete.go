package lifecycle

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
)

// decideDelete removes what belongs to a machine: its token, the pods on its Node, its VM, its
// Node, and last our finalizer.
func decideDelete(w World) Verdict {
	if !hasFinalizer(w.Machine) {
		return rest(0)
	}
	if w.Machine.Status.CurrentStatus.Phase != v1alpha1.MachineTerminating {
		return beginDelete(w)
	}
	if w.Failure != nil {
		f := w.Failure
		return failDelete(w, f.Code, cloudMessage(f.Code, f.Message))
	}
	if v, wait := drainNode(w); wait {
		return v
	}
	if v, wait := removeVM(w); wait {
		return v
	}
	return removeNode(w)
}

// beginDelete records that the machine is being deleted. The token of a VM that has not joined is
// deleted first, while the machine still has a record of it; or last, if the target cluster does
// not answer, because the deletion does not wait for that.
func beginDelete(w World) Verdict {
	if mayHaveToken(w) && w.Drain.State == drain.Unknown {
		return do(DropToken)
	}
	if v, wait := setTerminating(w); wait {
		return v
	}
	m := w.Machine.DeepCopy()
	endBackoff(m)
	noteToken(w, m)
	setPhase(w, m, v1alpha1.MachineTerminating, false)
	m.Status.CurrentStatus.PreserveExpiryTime = nil
	recordReason(w, m)
	setOperation(w, m, v1alpha1.LastOperation{
		Type: v1alpha1.MachineOperationDelete, State: v1alpha1.MachineStateProcessing,
		Description: "Deleting machine from cloud provider" + notOwned(w),
	})
	v := Verdict{Do: Save, Machine: m}
	if text := notOwned(w); text != "" {
		v = v.with(v1alpha1.EventNotOwned, m.Status.LastOperation.Description)
	}
	return v
}

// noteToken records a token that still exists, before the machine records its deletion in place of
// the fact that it has not joined.
func noteToken(w World, m *v1alpha1.Machine) {
	if mayHaveToken(w) {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationTokenLeft, "true")
	}
}

// removeVM has the VM deleted; wait is false when nothing is left of it. Where the cloud may have
// been asked for a VM, only the driver's DeleteMachine shows that: what a failed create has left is
// found by nothing else.
func removeVM(w World) (v Verdict, wait bool) {
	m := w.Machine
	if w.VM.State == VMAbsent && (w.VM.Gone || !isNoted(m)) {
		if next := adoptVM(w, DeleteVM); next != "" {
			return do(next), true
		}
		return reportLeft(w)
	}
	if w.VM.State == VMEnding && w.Now.Before(w.VM.askAgain()) {
		kept := m.DeepCopy()
		keepNote(kept, w.VM)
		return Verdict{Do: Rest, Machine: kept, Wake: until(w, w.VM.askAgain())}, true
	}
	if code, missing := missingForCloud(w); missing != "" {
		if !mayHaveVM(w) {
			return Verdict{}, false
		}
		return failDelete(w, code, "the VM cannot be looked for and deleted: "+missing), true
	}
	if !w.Secret.Read {
		return do(ReadSecret), true
	}
	if b, wait := waiting(w); wait && w.VM.State == VMUnknown {
		return waitToDelete(w, b), true
	}
	switch {
	case m.Spec.ProviderID != "", w.VM.State == VMHidden, w.VM.State == VMEnding, w.VM.State == VMAbsent, isSearchOver(w):
		return do(DeleteVM), true
	case w.VM.State == VMUnknown:
		// A create may have been broken off after the cloud created the VM and before it was written
		// down.
		return do(FindVM), true
	case w.VM.ProviderID == "": // the driver has not named what it has found
		return do(DeleteVM), true
	}
	found := m.DeepCopy()
	noteVM(found, w.VM)
	return Verdict{Do: Save, Machine: found}, true
}

// isSearchOver reports whether the cloud is not asked for the VM any more before the VM is deleted.
// Only the drain needs that: the driver's DeleteMachine finds the VM by the machine's UID. So a
// search that has failed is repeated for as long as the pods have time.
func isSearchOver(w World) bool {
	failures := readBackoff(w).Codes
	if len(failures) == 0 {
		return false
	}
	// Of several VMs none is drained where the machine names none of them.
	isUnknown := w.Machine.Spec.ProviderID == "" && slices.Contains(failures, driver.OutOfRange.String())
	return isUnknown || drain.ForDeletion(w.Machine, w.Limits.Drain).Under(w.Reach, w.Now).IsOver()
}

// reportLeft records that a VM that the provider ID names is not the machine's and is not deleted.
func reportLeft(w World) (v Verdict, wait bool) {
	text := "Deleting machine from cloud provider" + notOwned(w)
	if !w.VM.Left || w.Machine.Status.LastOperation.Description == text {
		return Verdict{}, false
	}
	m := w.Machine.DeepCopy()
	setOperation(w,
		m, v1alpha1.LastOperation{Type: v1alpha1.MachineOperationDelete, State: v1alpha1.MachineStateProcessing, Description: text})
	return Verdict{Do: Save, Machine: m, Events: []Event{{Reason: v1alpha1.EventNotOwned, Message: text}}}, true
}

// waitToDelete waits until the cloud may be asked again.
func waitToDelete(w World, b backoff) Verdict {
	code, message, isLost := b.lastFailure(w.Machine, v1alpha1.MachineOperationDelete)
	if !isLost {
		return rest(until(w, b.At))
	}
	v := failDelete(w, code, message)
	v.Wake, v.Events = until(w, b.At), []Event{{Reason: v1alpha1.EventDeleteFailed, Message: message}}
	return v
}

// missingForCloud names what is needed to call the cloud and is not there, with the code for
// that; "" when all is there or was not looked for.
func missingForCloud(w World) (code driver.Code, missing string) {
	class := w.Machine.Spec.Class.Name
	switch {
	case w.Class.Undecodable != "":
		missing = fmt.Sprintf("MachineClass %q cannot be decoded: %s; correct it", class, w.Class.Undecodable)
	case w.Class.Class == nil:
		missing = fmt.Sprintf("MachineClass %q does not exist; create it again", class)
	case w.Class.ProviderError != nil:
		missing = fmt.Sprintf("MachineClass %q: %v", class, w.Class.ProviderError)
	case w.Secret.Missing != "":
		return missingSecret(w, "; create it again")
	}
	return driver.NotFound, missing
}

// removeNode deletes the Node, whose VM does not exist any more, and what else is left in its
// cluster, and then removes the finalizer of the machine.
func removeNode(w World) Verdict {
	if NodeName(w.Machine) != "" && !w.NoTarget {
		switch w.Node.State {
		case NodeAbsent:
		case NodeUnseen, NodeNamed:
			return do(FindNode)
		case NodePresent:
			switch owns, toFind := ownsNode(w, w.Machine); {
			case owns:
				return do(DeleteNode)
			case toFind == FindNodeClaims:
				return do(toFind)
			} // else only the cloud could show whose Node it was, and it has no VM any more
		}
	}
	if w.Token != TokenAbsent && w.Machine.Annotations[v1alpha1.AnnotationTokenLeft] != "" && !w.NoTarget {
		return do(DropToken)
	}
	m := w.Machine.DeepCopy()
	m.Finalizers = slices.DeleteFunc(m.Finalizers, func(f string) bool { return f == v1alpha1.FinalizerName })
	if len(m.Finalizers) > 0 {
		setOperation(w, m, v1alpha1.LastOperation{
			Type: v1alpha1.MachineOperationDelete, State: v1alpha1.MachineStateSuccessful,
			Description: fmt.Sprintf("%s; the Machine remains until other clients have removed their finalizers: %s",
				whatIsGone(w), strings.Join(m.Finalizers, ", ")),
		})
	}
	return Verdict{Do: Rest, Machine: m}.with(v1alpha1.EventDeleted, deleted(w))
}

// deleted describes what the machine had that does not exist any more, what is left alone, and why.
func deleted(w World) string {
	left := ""
	if w.TargetProblem != "" && NodeName(w.Machine) != "" {
		left = fmt.Sprintf("; Node %q is left in the target cluster, which is not available", NodeName(w.Machine))
	}
	return whatIsGone(w) + left + "; reason: " + whyDeleted(w).Text()
}

// whatIsGone describes what the machine had that does not exist any more, and what is left alone.
func whatIsGone(w World) string {
	switch id := w.Machine.Spec.ProviderID; {
	case w.VM.Left:
		return "The machine is deleted" + notOwned(w)
	case id == "":
		return "The machine is deleted; it had no VM" + notOwned(w)
	default:
		return fmt.Sprintf("The machine and its VM %s are deleted", id) + notOwned(w)
	}
}

// failDelete records why the VM still exists, and when its deletion is tried again.
func failDelete(w World, code driver.Code, message string) Verdict {
	m := w.Machine.DeepCopy()
	keepNote(m, w.VM)
	before, known := noteFailure(w, m, v1alpha1.MachineOperationDelete, code, message)
	v := Verdict{Do: Rest, Machine: m}
	if !known {
		v = v.with(v1alpha1.EventDeleteFailed, message)
	}
	if w.Failure == nil { // the cloud was not asked: what is missing is in our reach, and wakes us when it is there
		return v
	}
	if w.Failure.Held {
		v.Wake = w.Failure.RetryAfter
		return v
	}
	next := before.failedAgain(w, code)
	next.write(m)
	v.Wake = until(w, next.At)
	return v
}
