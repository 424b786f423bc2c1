package receipt

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Kind is the kind of what is deleted: a Machine, a Node, or a resource at a cloud, for which there
// are the kinds of driver.ResourceKind.
type Kind string

// The kinds that belong to a Machine.
const (
	Machine Kind = "Machine"
	VM      Kind = "VM"
	Node    Kind = "Node"
)

// RenderedMachineConfig is the kind that belongs to a MachineConfigPool.
const RenderedMachineConfig Kind = "RenderedMachineConfig"

// Outcome is the known result of a deletion.
type Outcome string

// The outcomes.
const (
	// Accepted means that the API server or the cloud has accepted the deletion.
	Accepted Outcome = "Accepted"
	// Unknown means that the request was sent and not answered: it may have taken effect. It is sent
	// again, and has another receipt then.
	Unknown Outcome = "Unknown"
)

// Object is the object that is deleted.
type Object struct {
	Kind Kind `json:"kind"`
	// Namespace of the Machine; also set for a VM and a Node.
	Namespace string `json:"namespace,omitempty"`
	// Name of the Machine or Node; of a resource at a cloud its ID.
	Name string `json:"name,omitempty"`
	// UID of the Machine or Node; none for a resource at a cloud.
	UID types.UID `json:"uid,omitempty"`
	// ProviderID of the VM; "" when it is not known.
	ProviderID string `json:"providerID,omitempty"`
	// Machine and MachineUID identify the Machine that a VM, a Node or another resource belongs, or
	// belonged, to.
	Machine    string    `json:"machine,omitempty"`
	MachineUID types.UID `json:"machineUID,omitempty"`
	// Node is the name of the Machine's Node; "" when it has none.
	Node string `json:"node,omitempty"`
}

// By is the ownership under which a deletion was started. Slot and Epoch are not set for the
// leader.
type By struct {
	Replica string `json:"replica,omitempty"`
	Session string `json:"session,omitempty"`
	Slot    *int   `json:"slot,omitempty"`
	Epoch   *int64 `json:"epoch,omitempty"`
	Leader  bool   `json:"leader,omitempty"`
	// TraceID identifies the trace of the pass; "" when it is not sampled.
	TraceID string `json:"traceID,omitempty"`
}

// Receipt is the record of one deletion. Its JSON form is one line of the deletion log.
type Receipt struct {
	Time time.Time `json:"time"`
	Object
	Reason
	Outcome Outcome `json:"outcome"`
	By
}

// Line returns the receipt as a line of JSON.
func (r Receipt) Line() ([]byte, error) {
	line, err := json.Marshal(r)
	return append(line, '\n'), err
}

// Text returns the receipt of a deletion that was accepted as the message of an Event.
func (r Receipt) Text() string {
	text := fmt.Sprintf("Started to delete %s %s", r.Kind, cmp.Or(r.Name, r.ProviderID, "without a known provider ID"))
	if r.Machine != "" && r.Kind != Machine {
		text += " of machine " + r.Machine
	}
	if r.Node != "" && r.Kind != Node {
		text += fmt.Sprintf(" (Node %s)", r.Node)
	}
	return fmt.Sprintf("%s: %s; by %s", text, r.Reason.Text(), r.By.Text())
}

// Text returns the ownership for people.
func (b By) Text() string {
	text := "replica " + b.Replica
	switch {
	case b.Leader:
		text += ", leader"
	case b.Slot != nil && b.Epoch != nil:
		text += fmt.Sprintf(", slot %d, epoch %d", *b.Slot, *b.Epoch)
	}
	if b.TraceID != "" {
		text += ", trace " + b.TraceID
	}
	return text
}
