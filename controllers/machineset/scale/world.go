package scale

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// World is the input of a decision about one set. All of it is read only.
type World struct {
	Now time.Time
	Set *v1alpha1.MachineSet
	// Owned are the cached machines whose controller is the set.
	Owned []*v1alpha1.Machine
	// Undecodable are those of Owned that exist and of which only the metadata is known: the rest
	// cannot be decoded. They count, are not available, and are neither changed nor released. They are
	// deleted only where the unknown fields do not matter: because they are named, or because all are
	// deleted.
	Undecodable map[types.UID]bool
	// Orphans are the cached machines of the namespace without a controller.
	Orphans []*v1alpha1.Machine
	// MustListOrphans reports whether the set is new or has changed its selector: orphans may match
	// that are in other slots.
	MustListOrphans bool
	// ClassProblem is the reason that keeps machines of the set's class from getting VMs, as far as it
	// is known; "" if nothing does, or a machine of the set has one.
	ClassProblem string
	// ClassUnknown reports whether no check of the class has succeeded since this process has the set:
	// what its status says still holds.
	ClassUnknown bool
	// MustCheckClass reports whether ClassProblem may have changed; with ClassCheckLast, nothing else
	// waits for the check, which may hang.
	MustCheckClass, ClassCheckLast bool
	// TargetProblem is why the target cluster of the namespace of a set without a controller cannot be
	// used, so that its machines wait; "" if it can, or TargetPending reports that it is being
	// connected to.
	TargetProblem string
	TargetPending bool
	// Disruptions on the set's root: the machines that may be replaced when they have failed.
	Disruptions []disruption.Disruption
	// Held reports whether deletions of machines are held: only those are deleted that never ran.
	Held bool
	// HeldBy names what holds deletions; "" if nothing does, or that is not known yet.
	HeldBy string
	// CountMinReady reports whether a machine is available only after it has been so for the set's
	// minReadySeconds.
	CountMinReady bool
	// KeepObserved reports whether intents that are all observed are removed with the next ones, or
	// when this is no longer true: a set whose machines are replaced one by one has new ones every few
	// seconds.
	KeepObserved bool
	// IsReplaced reports whether a rollout is replacing all machines of the set: the order of their
	// deletion makes no difference, so that the API server is not read for it.
	IsReplaced bool
	// Live is the answer of the API server; nil if it was not read in this pass.
	Live *Live
	// Done contains what this pass has done.
	Done Done
}

// Live is a list of the API server, without a cache.
type Live struct {
	// Owned is the metadata of all machines whose controller is the set and that match its selector,
	// by UID.
	Owned map[types.UID]*metav1.ObjectMeta
	// Names of these machines, and of others that match the set's selector.
	Names map[string]bool
}

// Done contains what a pass has done already.
type Done struct {
	// Created are the ordinals whose machines exist now.
	Created map[int64]bool
	// Occupied are the ordinals whose names belong to machines that are not the set's.
	Occupied map[int64]bool
	// Deleted are the machines whose deletion the API server has accepted.
	Deleted map[types.UID]bool
	// Refused are the machines whose deletion the API server has rejected because they have changed
	// since they were read. The event of that change starts the next pass.
	Refused map[types.UID]bool
	// Adopted are the orphans whose adoption was tried; the cache shows whether it succeeded.
	Adopted map[types.UID]bool
	// Released are the names of the machines that were released.
	Released []string
	// AdoptionRace is that of the orphans that were to be adopted.
	AdoptionRace machinefacts.AdoptionRace
	// Updated are the machines whose update was tried, whether or not the API server has accepted it.
	Updated map[types.UID]bool
	// CreateError and DeleteError are the errors of creations and deletions; "" if there was none.
	CreateError, DeleteError string
}

// Action is one thing to do.
type Action string

// The actions.
const (
	// Rest ends the pass: Verdict.Set is written.
	Rest Action = "Rest"
	// Save writes Verdict.Set, because the following actions depend on it.
	Save Action = "Save"
	// ListLive lists the set's machines from the API server.
	ListLive Action = "ListLive"
	// CheckClass finds out World.ClassProblem.
	CheckClass Action = "CheckClass"
	// Adopt sets the set as the controller of Verdict.Machines.
	Adopt Action = "Adopt"
	// Release removes the set's owner reference from Verdict.Machines, which do not match the selector
	// any more.
	Release Action = "Release"
	// Create creates the machines of Verdict.Ordinals.
	Create Action = "Create"
	// Delete deletes Verdict.Machines.
	Delete Action = "Delete"
	// Update writes Verdict.Machines, which are in their desired state.
	Update Action = "Update"
)

// Verdict is the result of a decision.
type Verdict struct {
	Do Action
	// Set to be written, with Rest and Save; nil means unchanged.
	Set *v1alpha1.MachineSet
	// Machines of the action.
	Machines []*v1alpha1.Machine
	// Reasons are why Machines are deleted, with Delete, by their UIDs.
	Reasons map[types.UID]receipt.Reason
	// Ordinals of the machines to create.
	Ordinals []int64
	// Wake is the time until the next verdict without an event, with Rest; 0 means never.
	Wake time.Duration
	// AllObserved reports whether all intents are observed and still recorded on the set, with Rest.
	AllObserved bool
	// Waiting is the reason to wait, with Rest, as Waits returns it. It is for traces: the caller
	// of Decide sets it.
	Waiting string
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

// Waits returns what the set waits for, with Rest.
func (v Verdict) Waits() string { return v.Waiting }

// Reason returns why, without text of clouds, kubelets and users: the reason of an Event, or "",
// and a sentence.
func (v Verdict) Reason() (code, why string) {
	if len(v.Events) > 0 {
		code = v.Events[0].Reason
	}
	switch v.Do {
	case Rest:
		if v.Set == nil {
			return code, "the set has the machines that it should have"
		}
		return code, fmt.Sprintf("the set is written; replicas %d, %d exist", v.Set.Spec.Replicas, v.Set.Status.Replicas)
	case Save:
		return code, "intents have to be recorded before their effects begin"
	case ListLive:
		return code, "the caches may be late"
	case CheckClass:
		return code, "no machine of the set has a VM yet"
	case Adopt:
		return code, fmt.Sprintf("%d machines without a controller match the selector", len(v.Machines))
	case Release:
		return code, fmt.Sprintf("%d machines do not match the selector", len(v.Machines))
	case Create:
		return code, fmt.Sprintf("%d machines are recorded and do not exist", len(v.Ordinals))
	case Delete:
		return code, v.whyDeleted()
	case Update:
		return code, fmt.Sprintf("%d machines differ from the template where that needs no new VM", len(v.Machines))
	}
	return code, ""
}

// whyDeleted returns the reasons for the deletion of machines, each once.
func (v Verdict) whyDeleted() string {
	var all []string
	for _, m := range v.Machines {
		if why := v.Reasons[m.UID].Summary(); !slices.Contains(all, why) {
			all = append(all, why)
		}
	}
	return strings.Join(all, "; ")
}

// live returns what the API server has returned for a machine; nil means that it was deleted or no
// longer belongs to the set. requested reports whether the API server was read.
func (w World) live(m *v1alpha1.Machine) (meta *metav1.ObjectMeta, requested bool) {
	if w.Live == nil {
		return nil, false
	}
	return w.Live.Owned[m.UID], true
}

// newest returns the newest known metadata of a machine.
func (w World) newest(m *v1alpha1.Machine) *metav1.ObjectMeta {
	if meta, _ := w.live(m); meta != nil {
		return meta
	}
	return &m.ObjectMeta
}
