package receipt

import (
	"slices"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
)

// Rule is the rule by which something is deleted. The set of rules is closed.
type Rule string

// The rules.
const (
	// ScaledDown means that a MachineSet has more machines than replicas.
	ScaledDown Rule = "ScaledDown"
	// NamedByAutoscaler means that a client, mostly the cluster-autoscaler, has selected the machine
	// and lowered the replicas for it.
	NamedByAutoscaler Rule = "NamedByAutoscaler"
	// RolledOut means that a rollout has lowered the replicas of the machine's MachineSet.
	RolledOut Rule = "RolledOut"
	// Unhealthy means that the machine has failed for its Node's health, and that its root has
	// recorded a disruption for it.
	Unhealthy Rule = "Unhealthy"
	// CreationFailed means that the machine has not become a healthy Node in time, or has failed in
	// another way.
	CreationFailed Rule = "CreationFailed"
	// ParentDeleted means that the machine's MachineSet is being deleted.
	ParentDeleted Rule = "ParentDeleted"
	// NodeDeleted means that another client has deleted the machine's Node.
	NodeDeleted Rule = "NodeDeleted"
	// DeletionTriggered means that an annotation on the Machine or on its Node requests the deletion.
	DeletionTriggered Rule = "DeletionTriggered"
	// MachineDeleted means that a client of the API server other than the fleet has deleted the
	// Machine.
	MachineDeleted Rule = "MachineDeleted"
	// Orphaned means that a resource at a cloud belongs to no machine.
	Orphaned Rule = "Orphaned"
	// Superseded means that nothing names a RenderedMachineConfig any more.
	Superseded Rule = "Superseded"
)

// Rules returns all rules.
func Rules() []Rule {
	return []Rule{
		ScaledDown, NamedByAutoscaler, RolledOut, Unhealthy, CreationFailed, ParentDeleted, NodeDeleted, DeletionTriggered, MachineDeleted,
		Orphaned, Superseded,
	}
}

// ByKind returns the rules by which each kind of what belongs to a Machine or to a
// MachineConfigPool may be deleted. What a cloud has besides the VM is deleted as Orphaned only.
func ByKind() map[Kind][]Rule {
	ofMachine := []Rule{ScaledDown, NamedByAutoscaler, RolledOut, Unhealthy, CreationFailed, ParentDeleted, NodeDeleted, DeletionTriggered}
	ofNode := append(slices.Clone(ofMachine), MachineDeleted)
	return map[Kind][]Rule{
		Machine: ofMachine, Node: ofNode, VM: append(slices.Clone(ofNode), Orphaned), RenderedMachineConfig: {Superseded},
	}
}

// Reason is why something is deleted.
type Reason struct {
	Rule Rule `json:"rule"`
	// Evidence lists what the rule was applied to, as text for people: numbers, times, names.
	Evidence string `json:"evidence,omitempty"`
}

// mostEvidence is the number of bytes of evidence. A MachineSet records the reasons of up to a
// hundred deletions in an annotation.
const mostEvidence = 256

// Because returns a reason. The evidence may contain text of users and clouds, and is truncated.
func Because(rule Rule, evidence string) Reason {
	return Reason{Rule: rule, Evidence: bounded.Text(evidence, mostEvidence)}
}

// IsValid reports whether the rule is one of Rules. One that was read from an object may have been
// written by any client.
func (r Reason) IsValid() bool { return slices.Contains(Rules(), r.Rule) }

// Text returns the reason for people.
func (r Reason) Text() string {
	if r.Evidence == "" {
		return string(r.Rule)
	}
	return string(r.Rule) + ": " + r.Evidence
}

// Summary returns the reason without the evidence of rules whose evidence quotes clouds and
// kubelets. Traces show it.
func (r Reason) Summary() string {
	switch r.Rule {
	case Unhealthy, CreationFailed, Orphaned:
		return string(r.Rule)
	case ScaledDown, NamedByAutoscaler, RolledOut, ParentDeleted, NodeDeleted, DeletionTriggered, MachineDeleted, Superseded:
	}
	return r.Text()
}
