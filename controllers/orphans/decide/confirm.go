package decide

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Machine is a Machine as it was read.
type Machine struct {
	UID        types.UID
	ProviderID string
}

// Machines has what a complete live list of a namespace's Machines says about some suspects. Its
// size is that of the suspects.
type Machines struct {
	classes map[string]bool
	uids    map[types.UID]*Machine // the Machines with the UIDs of suspects, nil for those that do not exist
	ids     map[string]bool        // provider IDs of suspects, and whether a Machine has them
	wrong   string
}

// NewMachines returns Machines for suspects, of a list that has no page yet. classes are the names
// of all MachineClasses of the namespace.
func NewMachines(suspects []Suspect, classes map[string]bool) *Machines {
	m := &Machines{classes: classes, uids: map[types.UID]*Machine{}, ids: map[string]bool{}}
	for _, s := range suspects {
		m.ids[s.ID], m.uids[s.MachineUID] = false, nil
	}
	return m
}

// Add adds a Machine of the list.
func (m *Machines) Add(name string, machine Machine, class string) {
	if !m.classes[class] {
		m.doubt("Machine %s names the MachineClass %q, which does not exist", name, class)
	}
	if _, asked := m.uids[machine.UID]; asked {
		m.uids[machine.UID] = &machine
	}
	if _, asked := m.ids[machine.ProviderID]; asked {
		m.ids[machine.ProviderID] = true
	}
}

// AddUndecodable adds a Machine of which not even provider ID and class can be decoded: any VM may
// be its own.
func (m *Machines) AddUndecodable(name string) {
	m.doubt("Machine %s cannot be decoded, so that its VM is not known", name)
}

// doubt records the first reason why nothing in the namespace can be confirmed.
func (m *Machines) doubt(format string, args ...any) {
	if m.wrong == "" {
		m.wrong = fmt.Sprintf(format, args...)
	}
}

// Node is the object of the target cluster with the name of a VM's Node.
type Node int

// The values of Node.
const (
	// NodeAbsent means that there is no such Node, or one of another VM, or no target cluster.
	NodeAbsent Node = iota
	// NodeNotReady means that the VM's Node exists and is not Ready.
	NodeNotReady
	// NodeReady means that the VM's Node is Ready: it may run pods.
	NodeReady
	// NodeUnknown means that the driver does not know the name of the VM's Node.
	NodeUnknown
	// NodeUnread means that the target cluster is not available.
	NodeUnread
)

// Facts contains what was read for one suspect, all of it in the sweep that decides.
type Facts struct {
	Suspect

	// Entry is the suspicion as it was when the sweep began.
	Entry Entry
	// Age is the minimum age of a suspicion that can be confirmed.
	Age time.Duration
	// Machines are of a list that began after the resource was listed.
	Machines *Machines
	// ByName is the Machine of the name in the tags, read live; nil if there is none.
	ByName *Machine
	Node   Node
	// Unread is why the target cluster is not available, with NodeUnread.
	Unread string
}

// Decision states what to do about a suspect.
type Decision int

// The decisions.
const (
	// Wait leaves the resource alone.
	Wait Decision = iota
	// Hold leaves the resource alone until its deletion is approved.
	Hold
	// Delete deletes the resource, within the limits.
	Delete
)

// Verdict is a decision and its reason.
type Verdict struct {
	Do  Decision
	Why string
}

// Confirm decides about one suspect.
func Confirm(f Facts) Verdict {
	switch {
	case f.Entry.Duration() < f.Age:
		return Verdict{Wait, fmt.Sprintf("suspected for %s, less than %s", f.Entry.Duration(), f.Age)}
	case f.Machines.wrong != "":
		return Verdict{Wait, f.Machines.wrong}
	case f.Machines.ids[f.ID]:
		return Verdict{Wait, "a Machine has its provider ID"}
	case f.ByName != nil && f.ByName.ProviderID == f.ID:
		return Verdict{Wait, "the Machine of this name has its provider ID"}
	}
	if why := ownerOf(f); why != "" {
		return Verdict{Wait, why}
	}
	switch {
	case f.Node == NodeReady && !f.Entry.Approved:
		return Verdict{Hold, "its Node is Ready and may run pods"}
	case f.Node == NodeUnknown && !f.Entry.Approved:
		return Verdict{Hold, "the driver does not know its Node, which may run pods"}
	case f.Node == NodeUnread && !f.Entry.Approved:
		return Verdict{Hold, fmt.Sprintf("its Node may run pods, and the target cluster is not available (%s)", f.Unread)}
	}
	return Verdict{Delete, fmt.Sprintf("suspected for %s; no Machine has its UID or provider ID", f.Entry.Duration())}
}

// ownerOf returns why a Machine with the UID of a suspect forbids its deletion; "" if none does. A
// Machine must not have the UID of an orphan; that of a surplus VM must exist, and have another VM.
func ownerOf(f Facts) string {
	machine := f.Machines.uids[f.MachineUID]
	listed, named := machine != nil, f.ByName != nil && f.ByName.UID == f.MachineUID
	switch {
	case !f.Surplus && (listed || named):
		return "its Machine exists"
	case f.Surplus && (!listed || !named):
		return "its Machine exists no more, and it is suspected anew as an orphan"
	case f.Surplus && (machine.ProviderID == "" || f.ByName.ProviderID != machine.ProviderID):
		return "its Machine names no VM, or another one than before"
	}
	return ""
}
