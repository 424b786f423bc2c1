package groups

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// Requested is the prefix of the ID of an instance without a VM. The name of the Machine follows.
const Requested = "requested://"

// Machine has those facts about a Machine that answers depend on. The zero Machine is none.
type Machine struct {
	Name       string
	UID        types.UID
	Set        types.UID // its controller; "" without one
	ProviderID string
	// Node is the name of its Node, which a driver may have set before the Node exists.
	Node string
	// Deleting means that it is being deleted, or that the fleet has marked it for that because the
	// autoscaler has named it.
	Deleting bool
	// Ready means that its Node has joined and is healthy, and Joined that there was a Node once.
	Ready, Joined bool
	// Kept means that it is preserved, and stays although it is named.
	Kept bool
	// Failure is why its VM could not be created; nil when there is no such error.
	Failure *Failure

	age time.Time
}

// Failure is why a VM could not be created.
type Failure struct {
	// Code is the text of a driver.Code.
	Code string
	// Message is that of the cloud.
	Message string
	// OutOfResources means that the cloud has no quota or capacity. Other failures are those that
	// last until a person changes something.
	OutOfResources bool
}

// mostMessage is how many bytes of a message of a cloud are kept for each Machine.
const mostMessage = 512

// MachineOf returns the facts about a Machine at that time.
func MachineOf(m *v1alpha1.Machine, now time.Time) Machine {
	phase := m.Status.CurrentStatus.Phase
	is := Machine{
		Name: m.Name, UID: m.UID, ProviderID: m.Spec.ProviderID, Node: m.Labels[v1alpha1.LabelNode],
		Deleting: m.DeletionTimestamp != nil || isMarked(m),
		Ready:    machinefacts.IsReady(m),
		Joined:   hasJoined(m),
		Kept:     machinefacts.IsPreserved(m, now) || machinefacts.HasFailed(m) && machinefacts.IsKept(m, now),
		age:      m.CreationTimestamp.Time,
	}
	if owner := metav1.GetControllerOf(m); owner != nil {
		is.Set = owner.UID
	}
	if phase != v1alpha1.MachineTerminating && !is.Joined {
		is.Failure = failureOf(m.Status.LastOperation)
	}
	return is
}

// isMarked reports whether the fleet has marked a Machine that the autoscaler has named: then its
// name may have left the MachineDeployment already, and it must not be counted once more.
func isMarked(m *v1alpha1.Machine) bool {
	at, _ := machinefacts.TimeIn(m, v1alpha1.AnnotationMarkedForDeletionTime)
	return !at.IsZero() && m.Annotations[v1alpha1.AnnotationPriority] == v1alpha1.PriorityTriggered
}

// hasJoined reports whether the Machine shows that it has, or had, a Node: it is past the phases
// before that, or has conditions of a Node.
func hasJoined(m *v1alpha1.Machine) bool {
	for _, condition := range m.Status.Conditions {
		if condition.Type != v1alpha1.MachineDeleting {
			return true
		}
	}
	switch m.Status.CurrentStatus.Phase { //nolint:exhaustive // all others come after that a Node has joined
	case "", v1alpha1.MachinePending, v1alpha1.MachineCrashLoopBackOff:
		return false
	case v1alpha1.MachineFailed:
		return machinefacts.HasFailedHealth(m)
	case v1alpha1.MachineTerminating:
		return m.Labels[v1alpha1.LabelNode] != ""
	}
	return true
}

// failureOf returns the failure that an operation reports. Errors that pass by themselves are none:
// the fleet retries, and the autoscaler has a time-out.
func failureOf(op v1alpha1.LastOperation) *Failure {
	if op.Type != v1alpha1.MachineOperationCreate || op.State != v1alpha1.MachineStateFailed {
		return nil
	}
	code, known := driver.ParseCode(op.ErrorCode)
	if !known {
		return nil
	}
	f := &Failure{Code: op.ErrorCode, Message: bounded.Text(strings.ToValidUTF8(op.Description, "�"), mostMessage)}
	switch code { //nolint:exhaustive // all others pass, or are about a VM that exists
	case driver.ResourceExhausted:
		f.OutOfResources = true
	case driver.InvalidArgument, driver.NotFound, driver.PermissionDenied, driver.FailedPrecondition, driver.Unimplemented,
		driver.Unauthenticated:
	default:
		return nil
	}
	return f
}

// id returns the ID of the Machine as an instance.
func (m Machine) id() string {
	if m.ProviderID == "" {
		return Requested + m.Name
	}
	return m.ProviderID
}
