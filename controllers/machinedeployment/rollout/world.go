package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// World contains all that a decision about one deployment depends on. Everything in it is read
// only.
type World struct {
	Now        time.Time
	Deployment *v1alpha1.MachineDeployment
	// Owned are the sets, as the cache shows them or as this pass has written them, whose controller
	// is the deployment.
	Owned []*v1alpha1.MachineSet
	// Undecodable are sets whose controller is the deployment and of which only the metadata is known:
	// the rest cannot be decoded. While there are any, nothing is done but delete them with the
	// deployment: one of them may be the new set.
	Undecodable []*v1alpha1.MachineSet
	// Machines are the machines, as the cache shows them, of each set, by the set's UID.
	Machines map[types.UID][]*v1alpha1.Machine
	// CountMinReady has a machine be available only when it has been so for minReadySeconds.
	CountMinReady bool
	// NoComponentsTaint means that Nodes that were updated in place do not get the taint
	// critical-components-not-ready.
	NoComponentsTaint bool
	// KeepFromAutoscaler means that the cluster-autoscaler is kept from removing Nodes while machines
	// are replaced.
	KeepFromAutoscaler bool
	// Orphans are the sets of the namespace, as the cache shows them, that have no controller.
	Orphans []*v1alpha1.MachineSet
	// MustListOrphans reports whether the deployment is new or has changed its selector: orphans may
	// match that are in other slots.
	MustListOrphans bool
	// LiveSets are the UIDs of the deployment's sets as the API server has them; nil when it was not
	// read in this pass.
	LiveSets map[types.UID]bool
	// Released is how many sets of the namespace the deployment has released, as the API server has
	// them. It is known when LiveSets is.
	Released int
	// Confirmed reports whether the API server was read before, and that the cache shows all sets that
	// existed then, and that were created since.
	Confirmed bool
	// Live are the machines as the API server has them; nil when it was not read in this pass, or when
	// machines have changed since. When it was read, Deployment is as the API server has it, too.
	Live *Live
	// NoTarget reports whether there is no target cluster, so that no machine becomes a Node.
	NoTarget bool
	// TargetProblem is why the target cluster of the namespace cannot be used, so that its machines
	// wait; "" if it can, or TargetPending reports that it is being connected to.
	TargetProblem string
	TargetPending bool
	// Nodes are those of the machines, as the cache shows them or as this pass has written them, by
	// name. Where machines are not updated in place those are missing that carry nothing of such an
	// update.
	Nodes map[string]*corev1.Node
	// Done contains what this pass has done.
	Done Done
}

// Live is a list of the machines of a namespace.
type Live struct {
	// Machines has the metadata of the machines of each set, by the set's UID.
	Machines map[types.UID][]*metav1.ObjectMeta
	// OldResized reports whether an old set was given another size since. It may have created a
	// machine before that.
	OldResized bool
}

// of returns the machines of a set; none if the API server was not read.
func (l *Live) of(set *v1alpha1.MachineSet) []*metav1.ObjectMeta {
	if l == nil {
		return nil
	}
	return l.Machines[set.UID]
}

// Wrote records that a set was written.
func (w *World) Wrote(set *v1alpha1.MachineSet) {
	newSet := NewSet(w.Deployment, w.Owned)
	i := slices.IndexFunc(w.Owned, func(s *v1alpha1.MachineSet) bool { return s.UID == set.UID })
	if w.Live != nil && w.Owned[i].Spec.Replicas != set.Spec.Replicas && (newSet == nil || newSet.UID != set.UID) {
		w.Live.OldResized = true
	}
	w.Owned[i] = set
}

// Done contains what a pass has done already.
type Done struct {
	// Moved are the sets whose adoption or release was tried.
	Moved map[types.UID]bool
	// AdoptionRace is that of the orphans that were to be adopted.
	AdoptionRace machinefacts.AdoptionRace
	// Deleted are the sets whose deletion was accepted.
	Deleted map[types.UID]bool
	// Collided reports whether the name of the new set belongs to another set.
	Collided bool
	// RollbackRefused is why the API server has refused the template of a rollback; "" when it has
	// not.
	RollbackRefused string
	// CreateError is why the new set could not be created; "" when it could.
	CreateError string
}

// Action is one thing to do.
type Action string

// The actions.
const (
	// Rest ends the pass: the deployment is written as Verdict.Deployment.
	Rest Action = "Rest"
	// Save writes Verdict.Deployment, because what follows needs it written.
	Save Action = "Save"
	// ListSets lists the deployment's sets from the API server.
	ListSets Action = "ListSets"
	// ReadLive reads the deployment, and lists the machines of its sets, from the API server.
	ReadLive Action = "ReadLive"
	// Mark writes Verdict.Machines, each with its desired metadata.
	Mark Action = "Mark"
	// WriteNodes writes Verdict.Nodes, each in its desired state.
	WriteNodes Action = "WriteNodes"
	// WriteMachines writes Verdict.Machines, each in its desired state.
	WriteMachines Action = "WriteMachines"
	// Adopt sets the deployment as the controller of Verdict.Sets.
	Adopt Action = "Adopt"
	// Release removes the deployment's owner reference from Verdict.Sets, which do not match the
	// selector, or remain when the deployment is deleted.
	Release Action = "Release"
	// Create creates Verdict.Sets[0].
	Create Action = "Create"
	// Update writes Verdict.Sets, each in its desired state.
	Update Action = "Update"
	// Delete deletes Verdict.Sets.
	Delete Action = "Delete"
)

// Verdict is a decision.
type Verdict struct {
	Do Action
	// Deployment in its desired state, with Rest and Save; nil means as it is.
	Deployment *v1alpha1.MachineDeployment
	// Sets that the action is about.
	Sets []*v1alpha1.MachineSet
	// Nodes and Machines that the action is about.
	Nodes    []*corev1.Node
	Machines []*v1alpha1.Machine
	// Events report to the user what has changed.
	Events []Event
	// Replacing reports whether a rollout is under way, with Rest.
	Replacing bool
	// Waiting is the reason to wait, with Rest, as Waits returns it. It is for traces: the
	// caller of Decide sets it.
	Waiting string
	// Wake is when to decide again although nothing happens, from now; 0 when time alone changes
	// nothing.
	Wake time.Duration
}

// Next returns the name of the action, and whether the pass rests.
func (v Verdict) Next() (action string, rest bool) { return string(v.Do), v.Do == Rest }

// Waits returns what a rollout waits for, with Rest.
func (v Verdict) Waits() string { return v.Waiting }

// Reason returns why, without text of clouds, kubelets and users: the reason of an Event, or "",
// and a sentence.
func (v Verdict) Reason() (code, why string) {
	if len(v.Events) > 0 {
		return v.Events[0].Reason, v.Events[0].Reason
	}
	switch v.Do {
	case Rest:
		if v.Replacing {
			return "", "a rollout waits for its machines"
		}
		return "", "the sets have their sizes"
	case Save:
		return "", "the next action depends on what is written"
	case ListSets:
		return "", "the cache may not show all sets"
	case ReadLive:
		return "", "the caches may be late"
	case Mark:
		return "", fmt.Sprintf("the metadata of %d machines differ", len(v.Machines))
	case WriteNodes:
		return "", fmt.Sprintf("%d Nodes are updated in place, or have been", len(v.Nodes))
	case WriteMachines:
		return "", fmt.Sprintf("%d machines change their set after an update in place", len(v.Machines))
	case Adopt:
		return "", fmt.Sprintf("%d sets without a controller match the selector", len(v.Sets))
	case Release:
		return "", fmt.Sprintf("%d sets do not match the selector", len(v.Sets))
	case Create:
		return "", "no set has the current template"
	case Update:
		return "", v.sizes()
	case Delete:
		return "", fmt.Sprintf("%d sets are beyond the history or belong to a deployment that is being deleted", len(v.Sets))
	}
	return "", ""
}

// sizes returns the sizes with which sets are written.
func (v Verdict) sizes() string {
	var all []string
	for _, set := range v.Sets {
		all = append(all, fmt.Sprintf("%s has %d replicas", set.Name, set.Spec.Replicas))
	}
	return strings.Join(all, ", ")
}

// Event is something that a user should see on the deployment.
type Event struct {
	// Reason is one of v1alpha1.EventReasons.
	Reason  string
	Message string
}
