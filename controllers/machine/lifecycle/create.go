package lifecycle

import (
	"bytes"
	"cmp"
	"fmt"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/nodesync"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// begin puts our finalizer on a machine. If nothing prevents the creation of its VM, the same write
// records that the cloud is asked for one.
func begin(w World) Verdict {
	m := w.Machine.DeepCopy()
	m.Finalizers = append(m.Finalizers, v1alpha1.FinalizerName)
	if m.Spec.ProviderID == "" && isBeingCreated(w) && !isToBeDeleted(w) {
		v, wrong := checkInputs(w)
		if wrong && v.Do != Rest { // something has to be read first
			return v
		}
		if !wrong {
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationCreateSent, "true")
		}
	}
	return Verdict{Do: Save, Machine: m}
}

// decideCreate creates the VM of a machine: check the inputs, add finalizers to them, look for the
// VM, create it, record it.
func decideCreate(w World) Verdict {
	switch {
	case w.Failure != nil:
		return cloudFailed(w)
	case w.VM.Invalid != "":
		return invalidVM(w)
	}
	if v, wrong := checkInputs(w); wrong {
		if v.Machine != nil && !mayHaveVM(w) {
			delete(v.Machine.Annotations, v1alpha1.AnnotationCreateSent)
		}
		return v
	}
	if b, wait := waiting(w); wait && w.VM.State == VMUnknown {
		return waitForCloud(w, b)
	}
	if !w.Class.HasFinalizers {
		return do(AddFinalizers)
	}
	switch w.VM.State {
	case VMUnknown:
		return do(FindVM)
	case VMAbsent, VMHidden:
		if next := adoptVM(w, FindVM); next != "" {
			return do(next)
		}
		return createVM(w)
	case VMUninitialized:
		return do(InitializeVM)
	case VMPresent:
		return recordVM(w)
	case VMEnding: // only VMs of machines that are being deleted are deleted
	}
	return rest(firstRetry)
}

// mayHaveVM reports whether the cloud may have been asked for a VM. That is recorded before the
// request; and the cloud is asked only when class and secrets have our finalizers, which are not
// removed while the class has machines.
func mayHaveVM(w World) bool {
	class := w.Class.Class
	return isNoted(w.Machine) && (w.Machine.Spec.ProviderID != "" || class == nil || slices.Contains(class.Finalizers, v1alpha1.FinalizerName))
}

// isNoted reports whether the machine records its VM, or that the cloud is asked for one.
func isNoted(m *v1alpha1.Machine) bool {
	return m.Spec.ProviderID != "" || m.Annotations[v1alpha1.AnnotationCreateSent] != ""
}

// createVM creates the VM, unless the machine has had one: then it is set up again, if it exists.
func createVM(w World) Verdict {
	had := w.Machine.Spec.ProviderID
	switch {
	case had != "" && w.VM.State == VMHidden:
		return do(InitializeVM)
	case had != "":
		// Aborted, and not NotFound: no change of inputs helps, and a replacement does.
		return failCreate(w, w.Machine.DeepCopy(), driver.Aborted,
			fmt.Sprintf("the cloud has no VM %s of this machine%s; a machine gets one VM in its life; to get another VM, delete the machine",
				had, notOwned(w)))
	}
	if v, wrong := checkFields(w); wrong {
		return v
	}
	switch {
	case w.Token == TokenUnknown && !w.NoTarget && wantsToken(w.Secret.UserData):
		return do(CreateToken)
	case w.Machine.Annotations[v1alpha1.AnnotationCreateSent] == "":
		// A replica that finds the machine after this process has died in the call must know that there
		// may be a VM.
		m := w.Machine.DeepCopy()
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationCreateSent, "true")
		return Verdict{Do: Save, Machine: m}
	}
	return do(CreateVM)
}

// recordVM records the VM that exists now, and begins to wait for its Node.
func recordVM(w World) Verdict {
	m := w.Machine.DeepCopy()
	noteVM(m, w.VM)
	if w.NoTarget && w.VM.ProviderID != "" {
		return recordTargetless(w, m)
	}
	if w.VM.NodeName == "" || w.VM.ProviderID == "" {
		return failCreate(w, m, driver.Internal, fmt.Sprintf(
			"the driver returned provider ID %q and node name %q for the VM, and both are needed", w.VM.ProviderID, w.VM.NodeName))
	}
	if w.Node.State == NodeNamed {
		return do(FindNode) // it may be the Node of another VM
	}
	if _, toFind := ownsNode(w, m); toFind != "" {
		return do(toFind)
	}
	if isForeign(w, m) && !isNameless(w.Node.Node) {
		return staleNode(w, m)
	}
	endBackoff(m)
	setApplied(m, nodesync.AppliedOf(m).With(nodesync.Restricted(&m.Spec.NodeTemplateSpec)))
	setPhase(w, m, v1alpha1.MachinePending, true)
	awaitNode(w, m)
	return Verdict{Do: Save, Machine: m}.with(v1alpha1.EventCreated,
		fmt.Sprintf("VM %s exists and is set up; waiting for Node %q to join", m.Spec.ProviderID, NodeName(m)))
}

// awaitNode records that the Node is awaited.
func awaitNode(w World, m *v1alpha1.Machine) {
	setOperation(w, m, v1alpha1.LastOperation{
		Type: v1alpha1.MachineOperationCreate, State: v1alpha1.MachineStateProcessing,
		Description: "Creating machine on cloud provider: the VM exists, its Node is awaited" + withoutToken(w) + elsewhere(w),
	})
}

// withoutToken returns the remark on a VM whose Node does not join that it got no bootstrap token,
// where that is known. It may boot from something that has another way to join.
func withoutToken(w World) string {
	userData := w.Secret.UserData
	if w.NoTarget || w.Node.State == NodePresent || len(userData) == 0 || wantsToken(userData) {
		return ""
	}
	return fmt.Sprintf("; the user data has no %s, so the VM needs another way to join", v1alpha1.PlaceholderBootstrapToken)
}

// noteVM copies what the cloud has returned about the VM to the machine.
func noteVM(m *v1alpha1.Machine, vm VMFact) {
	if m.Labels == nil {
		m.Labels = map[string]string{}
	}
	if vm.NodeName != "" {
		m.Labels[v1alpha1.LabelNode] = vm.NodeName
	}
	if m.Spec.ProviderID = cmp.Or(vm.ProviderID, m.Spec.ProviderID); m.Spec.ProviderID != "" {
		delete(m.Annotations, v1alpha1.AnnotationCreateSent)
	}
	if m.Annotations[v1alpha1.AnnotationPriority] == "" {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationPriority, v1alpha1.PriorityDefault)
	}
	keepNote(m, vm)
}

// keepNote keeps the driver's own record of the VM.
func keepNote(m *v1alpha1.Machine, vm VMFact) {
	m.Status.LastKnownState = cmp.Or(vm.LastKnownState, m.Status.LastKnownState)
}

// staleNode is for a VM whose Node cannot join because another VM's has its name. Where the cloud
// reuses names of Nodes, the next VM gets another name, so the machine fails at once.
func staleNode(w World, m *v1alpha1.Machine) Verdict {
	v := failCreate(w, m, driver.Internal, foreignNodeMessage(m, w.Node.Node))
	if w.VM.NodeName != m.Name {
		setPhase(w, m, v1alpha1.MachineFailed, false)
		endBackoff(m)
		v.Wake = 0
		if len(v.Events) == 0 { // the error is known, that the machine is given up for it is not
			v = v.with(v1alpha1.EventCreateFailed, m.Status.LastOperation.Description)
		}
	}
	return v
}

// foreignNodeMessage returns why a machine has no Node. It names no other machine, and of the Node
// only what the machine has, too: the Node may be of a namespace that the reader must not see.
func foreignNodeMessage(m *v1alpha1.Machine, node *corev1.Node) string {
	switch id := node.Spec.ProviderID; {
	case isNameless(node):
		return fmt.Sprintf("Node %q is not this machine's: it has no spec.providerID; its kubelet, or the cloud controller manager, "+
			"has to set it to %s, or the kubelet has to register with the label %s=%s",
			node.Name, m.Spec.ProviderID, v1alpha1.LabelMachineName, m.Name)
	case id == "":
		return fmt.Sprintf("Node %q belongs to another machine, so that this machine's VM, %s, cannot join; delete that Node if its VM is gone",
			node.Name, m.Spec.ProviderID)
	case driver.SameVM(m.Spec.ProviderID, id):
		return fmt.Sprintf("Node %q has this machine's provider ID, %s, and is not this machine's: another machine has it, "+
			"or the cloud does not show that this VM has this machine's UID", node.Name, id)
	default:
		return fmt.Sprintf("Node %q belongs to another VM, so that this machine's VM, %s, cannot join; delete that Node if its VM is gone",
			node.Name, m.Spec.ProviderID)
	}
}

// isNameless reports whether a Node names neither its VM nor its machine. Some get their provider
// ID a moment after they have joined.
func isNameless(node *corev1.Node) bool {
	_, bound := v1alpha1.MachineOf(node)
	return node.Spec.ProviderID == "" && node.Labels[v1alpha1.LabelMachineName] == "" && !bound
}

// cloudFailed records an error of the cloud, with what is known of the VM, and when it is tried
// again.
func cloudFailed(w World) Verdict {
	m := w.Machine.DeepCopy()
	if w.VM.State == VMUninitialized && w.VM.ProviderID != "" {
		noteVM(m, w.VM)
	}
	f := w.Failure
	return failCreate(w, m, f.Code, cloudMessage(f.Code, f.Message))
}

// invalidVM records the valid parts of what the driver has returned about a VM, and what is
// invalid: the VM exists, and its deletion needs what is known of it.
func invalidVM(w World) Verdict {
	m := w.Machine.DeepCopy()
	if w.VM.ProviderID != "" {
		noteVM(m, w.VM)
	}
	return failCreate(w, m, driver.Internal, cloudMessage(driver.Internal, w.VM.Invalid))
}

// waitForCloud waits until the cloud may be asked again. The machine fails when its creation
// deadline is earlier.
func waitForCloud(w World, b backoff) Verdict {
	code, message, isLost := b.lastFailure(w.Machine, v1alpha1.MachineOperationCreate)
	at, deadline := b.At, creationDeadline(w)
	if !sharedByReplacement(code) && deadline.Before(at) {
		at = deadline
	}
	if !isLost && at.After(w.Now) {
		return rest(until(w, at))
	}
	v := failCreate(w, w.Machine.DeepCopy(), code, message)
	if at.After(w.Now) {
		v.Wake, v.Events = until(w, at), []Event{{Reason: v1alpha1.EventCreateFailed, Message: message}}
	}
	return v
}

// failCreate records why there is no VM, or no Node that belongs to it, and when to look again. The
// machine fails when its creation deadline is over and a replacement could succeed.
func failCreate(w World, m *v1alpha1.Machine, code driver.Code, message string) Verdict {
	deadline := creationDeadline(w)
	isOver := !sharedByReplacement(code) && !w.Now.Before(deadline)
	phase := v1alpha1.MachineCrashLoopBackOff
	if isOver {
		phase = v1alpha1.MachineFailed
	}
	setPhase(w, m, phase, false)
	keepNote(m, w.VM)
	before, known := noteFailure(w, m, v1alpha1.MachineOperationCreate, code, message)
	// Once for each series of failures: what the next answers of the cloud are must not cause further
	// sweeps.
	v := Verdict{Do: Rest, Machine: m, RequestSweep: code == driver.OutOfRange && !known}
	switch {
	case isOver:
		v = v.with(v1alpha1.EventCreateTimedOut, message)
		return v
	case !known:
		v = v.with(v1alpha1.EventCreateFailed, message)
	}
	switch {
	case w.Failure != nil && w.Failure.Held:
		v.Wake = w.Failure.RetryAfter
	case w.Failure != nil || w.VM.State != VMUnknown:
		next := before.failedAgain(w, code)
		next.write(m)
		v.Wake = until(w, next.At)
	} // else the cloud was not asked: what is wrong is in the control cluster, and its change starts a pass
	if !sharedByReplacement(code) && (v.Wake == 0 || until(w, deadline) < v.Wake) {
		v.Wake = until(w, deadline)
	}
	return v
}

// tokenLength is the length of a bootstrap token, "id.secret". No character of one is changed by
// URL encoding.
const tokenLength = 6 + 1 + 16

// userDataSize returns how many bytes the user data has once its placeholders, plain and
// URL-encoded, are filled in. It is known before there is a token, so that none is created for a VM
// that no cloud takes.
func userDataSize(w World) int {
	size := len(w.Secret.UserData)
	fill := func(placeholder string, plain, encoded int) {
		size += bytes.Count(w.Secret.UserData, []byte(placeholder)) * (plain - len(placeholder))
		escaped := url.QueryEscape(placeholder)
		size += bytes.Count(w.Secret.UserData, []byte(escaped)) * (encoded - len(escaped))
	}
	name := w.Machine.Name
	fill(v1alpha1.PlaceholderMachineName, len(name), len(url.QueryEscape(name)))
	if !w.NoTarget {
		fill(v1alpha1.PlaceholderBootstrapToken, tokenLength, tokenLength)
	}
	for placeholder, value := range w.Config.Values {
		fill(placeholder, len(value), len(url.QueryEscape(value)))
	}
	return size
}

// wantsConfig reports whether the user data has a placeholder of machine configuration, plain or
// URL-encoded.
func wantsConfig(userData []byte) bool {
	return slices.ContainsFunc(v1alpha1.MachineConfigPlaceholders(), func(placeholder string) bool {
		return hasPlaceholder(userData, placeholder)
	})
}

func hasPlaceholder(userData []byte, placeholder string) bool {
	return bytes.Contains(userData, []byte(placeholder)) || bytes.Contains(userData, []byte(url.QueryEscape(placeholder)))
}
