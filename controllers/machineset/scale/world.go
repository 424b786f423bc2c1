package scale

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/disruption"
)

// World is all that a decision about one set rests on. Everything in it is read only.
type World struct {
	Now time.Time
	Set *v1alpha1.MachineSet
	// Owned are the machines, as the cache shows them, whose controller is the set.
	Owned []*v1alpha1.Machine
	// Undecodable are those of Owned that exist and of which only the metadata is known: the rest cannot be decoded. They
	// count, are not available, and are neither changed nor released. They are deleted only where nothing of what is not known
	// matters: because they are named for that, or because all go.
	Undecodable map[types.UID]bool
	// Orphans are the machines of the namespace, as the cache shows them, that have no controller.
	Orphans []*v1alpha1.Machine
	// MustLook says that the set is new or has changed its selector: orphans may match that are in other slots.
	MustLook bool
	// Disruptions stand on the set's root: the machines that may be replaced when they have failed.
	Disruptions []disruption.Disruption
	// CountMinReady says that a machine is available only after it has been so for the set's minReadySeconds.
	CountMinReady bool
	// TidyLater says that intents which are all seen done are struck off with the next ones, or when this does not hold any more:
	// a set whose machines are replaced one by one has new ones every few seconds.
	TidyLater bool
	// Fades says that a rollout takes machines of the set and goes on to take all of them: which go first makes no difference, so that the
	// API server is not asked for it.
	Fades bool
	// Live is what the API server itself says; nil when it was not asked in this pass.
	Live *Live
	// Done is what this pass has done.
	Done Done
}

// Live is a list of the API server, past all caches.
type Live struct {
	// Owned is the metadata of all machines whose controller is the set and that match its selector, by UID.
	Owned map[types.UID]*metav1.ObjectMeta
	// Names of these machines, and of others that match the set's selector.
	Names map[string]bool
}

// Done is what a pass has done already.
type Done struct {
	// Created are the ordinals whose machines exist now.
	Created map[int64]bool
	// Taken are the ordinals whose names belong to machines that are not the set's.
	Taken map[int64]bool
	// Deleted are the machines whose deletion the API server has accepted.
	Deleted map[types.UID]bool
	// Refused are the machines whose deletion the API server has refused because they have changed since they were
	// looked at. The event of that change starts the next pass.
	Refused map[types.UID]bool
	// Adopted are the orphans that were tried; whether it worked shows in the cache.
	Adopted map[types.UID]bool
	// Updated are the machines that were to be changed, whether or not the API server has accepted it.
	Updated map[types.UID]bool
	// CreateError and DeleteError say why not all of it worked; "" when it did.
	CreateError, DeleteError string
}

// Action is one thing to do.
type Action string

// The actions.
const (
	// Rest ends the pass: the set is written as Verdict.Set says.
	Rest Action = "Rest"
	// Save writes the set as Verdict.Set says, because what follows needs it written.
	Save Action = "Save"
	// ListLive asks the API server for the set's machines.
	ListLive Action = "ListLive"
	// Adopt makes the set the controller of Verdict.Machines.
	Adopt Action = "Adopt"
	// Release takes Verdict.Machines, which do not match the selector any more, from the set.
	Release Action = "Release"
	// Create makes the machines of Verdict.Ordinals.
	Create Action = "Create"
	// Delete deletes Verdict.Machines.
	Delete Action = "Delete"
	// Update writes Verdict.Machines, which are as they should stand.
	Update Action = "Update"
)

// Verdict is a decision.
type Verdict struct {
	Do Action
	// Set as it should stand, with Rest and Save; nil means as it is.
	Set *v1alpha1.MachineSet
	// Machines that the action is about.
	Machines []*v1alpha1.Machine
	// Ordinals of the machines to make.
	Ordinals []int64
	// Wake is when, from now, another verdict is due although nothing happens, with Rest; 0 means never.
	Wake time.Duration
	// Untidy says that all intents are seen done and stand on the set still, with Rest.
	Untidy bool
	// Events report what has changed with the status of Set, with Rest.
	Events []Event
}

// Event is something that a user should see on the set.
type Event struct {
	// Reason is one of v1alpha1.EventReasons.
	Reason  string
	Message string
}

// Next returns the name of the action, and whether the pass rests.
func (v Verdict) Next() (action string, rest bool) { return string(v.Do), v.Do == Rest }

// live is what the API server itself has said of a machine: nil that it is not the set's any more, or gone. asked is false
// when it was not asked.
func (w World) live(m *v1alpha1.Machine) (meta *metav1.ObjectMeta, asked bool) {
	if w.Live == nil {
		return nil, false
	}
	return w.Live.Owned[m.UID], true
}

// newest is the newest metadata that is known of a machine.
func (w World) newest(m *v1alpha1.Machine) *metav1.ObjectMeta {
	if meta, _ := w.live(m); meta != nil {
		return meta
	}
	return &m.ObjectMeta
}
