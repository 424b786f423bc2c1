package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
)

// Why explains a machine: its state, what it waits for, and what was decided for it.
type Why struct {
	Object

	UID types.UID `json:"uid,omitempty"`
	// Gone means that the machine does not exist any more.
	Gone       bool      `json:"gone,omitempty"`
	State      string    `json:"state"`
	Since      time.Time `json:"since,omitzero"`
	Created    time.Time `json:"created,omitzero"`
	Node       string    `json:"node,omitempty"`
	ProviderID string    `json:"providerID,omitempty"`
	Class      string    `json:"class,omitempty"`
	Owner      Owner     `json:"owner,omitzero"`
	// Waits lists what it waits for. A machine that serves waits for nothing.
	Waits []Wait `json:"waits"`
	// Holds are the troubles of its parents, its Namespace and the fleet that keep it waiting.
	Holds []Trouble `json:"holds"`
	// Decisions, the oldest first.
	Decisions []Decision `json:"decisions"`
	Missing   []Missing  `json:"missing,omitempty"`
}

// Wait describes one thing that a machine waits for.
type Wait struct {
	For string `json:"for"`
	// Until is when that ends, or what follows is done; zero without a limit.
	Until time.Time `json:"until,omitzero"`
	// Then describes the consequence at that time.
	Then string `json:"then,omitempty"`
}

// Source is where a decision is recorded.
type Source string

// The sources.
const (
	SourceEvent         Source = "Event"
	SourceCondition     Source = "condition"
	SourceLastOperation Source = "last operation"
	SourceReceipt       Source = "receipt"
)

// Decision is something that was done with a machine, with its evidence.
type Decision struct {
	Time   time.Time `json:"time"`
	Reason string    `json:"reason"`
	// Text has the evidence.
	Text string `json:"text"`
	// By is the replica.
	By     string `json:"by,omitempty"`
	Source Source `json:"source"`
	// Count is how often the Event was emitted, if more than once.
	Count int32 `json:"count,omitempty"`
	// Warning marks what went wrong.
	Warning bool `json:"warning,omitempty"`
}

// WhyOf returns what is known of a machine. receipts are those of the deletion log, if there is
// one. Errors: nothing is known of a machine of that name.
func WhyOf(s Snapshot, namespace, name string, receipts []receipt.Receipt) (Why, error) {
	y := Why{
		Object: Object{Kind: KindMachine, Namespace: namespace, Name: name}, Waits: []Wait{}, Holds: []Trouble{}, Decisions: []Decision{},
		Missing: s.Missing,
	}
	i := slices.IndexFunc(s.Machines, func(m *v1alpha1.Machine) bool { return m.Namespace == namespace && m.Name == name })
	for _, e := range s.Events {
		if e.Regarding.Kind == KindMachine && e.Regarding.Name == name && e.Regarding.Namespace == namespace {
			y.Decisions = append(y.Decisions, fromEvent(e))
		}
	}
	for _, r := range receipts {
		if r.Namespace == namespace && (r.Kind == receipt.Machine && r.Name == name || r.Machine == name) {
			y.Decisions = append(y.Decisions, Decision{Time: r.Time, Reason: string(r.Rule), Text: r.Text(), By: r.Replica, Source: SourceReceipt})
			y.Node, y.ProviderID = cmp.Or(y.Node, r.Node), cmp.Or(y.ProviderID, r.ProviderID)
		}
	}
	if i >= 0 {
		y.describe(s, s.Machines[i])
	} else if y.Gone, y.State = true, "gone"; len(y.Decisions) == 0 {
		return y, fmt.Errorf("expected a Machine %s in namespace %s, and found none, and no Events or receipts about one. API servers keep "+
			"Events for an hour by default; the deletion log has receipts for longer: --receipts FILE", name, namespace)
	}
	slices.SortStableFunc(y.Decisions, func(a, b Decision) int { return a.Time.Compare(b.Time) })
	return y, nil
}

func fromEvent(e *eventsv1.Event) Decision {
	d := Decision{
		Time: e.EventTime.Time, Reason: e.Reason, Text: lifecycle.CloudText(e.Note), By: e.ReportingInstance, Source: SourceEvent,
		Warning: e.Type == "Warning",
	}
	if d.Time.IsZero() {
		d.Time = e.CreationTimestamp.Time
	}
	if e.Series != nil {
		d.Time, d.Count = e.Series.LastObservedTime.Time, e.Series.Count
	}
	return d
}

// describe adds what a machine that exists shows.
func (y *Why) describe(s Snapshot, m *v1alpha1.Machine) {
	y.UID, y.Created, y.Class = m.UID, m.CreationTimestamp.Time, m.Spec.Class.Name
	y.Node, y.ProviderID = m.Labels[v1alpha1.LabelNode], m.Spec.ProviderID
	y.State, y.Since = StateOf(m), m.Status.CurrentStatus.LastUpdateTime.Time
	if m.DeletionTimestamp != nil {
		y.Since = m.DeletionTimestamp.Time
	}
	if y.Since.IsZero() {
		y.Since = y.Created
	}
	if last := m.Status.LastOperation; last.Type != "" {
		d := Decision{
			Time: last.LastUpdateTime.Time, Reason: fmt.Sprintf("%s %s", last.Type, last.State), Text: lifecycle.CloudText(last.Description),
			Source: SourceLastOperation, Warning: last.State == v1alpha1.MachineStateFailed,
		}
		same := slices.IndexFunc(y.Decisions, func(e Decision) bool { return e.Source == SourceEvent && e.Text == d.Text })
		if last.ErrorCode != "" {
			d.Text = last.ErrorCode + ": " + d.Text
		}
		if same >= 0 { // the Event says the same, and by which replica
			y.Decisions[same].Text = d.Text
		} else {
			y.Decisions = append(y.Decisions, d)
		}
	}
	for _, c := range m.Status.Conditions {
		if c.Type == v1alpha1.MachineDeleting {
			y.Decisions = append(y.Decisions, Decision{
				Time: c.LastTransitionTime.Time, Reason: string(c.Type) + " " + c.Reason, Text: c.Message, Source: SourceCondition,
			})
		}
	}
	p := parentsOf(s, m)
	y.Owner = p.owner
	y.Waits = append(y.Waits, waitsOf(s, m, p)...)
	y.Holds = append(y.Holds, p.holds(s, m)...)
}

// parents are the objects above a machine.
type parents struct {
	set        *v1alpha1.MachineSet        // nil without one
	deployment *v1alpha1.MachineDeployment // nil without one
	fleet      Fleet
	owner      Owner
}

func parentsOf(s Snapshot, m *v1alpha1.Machine) (p parents) {
	for _, set := range s.Sets {
		if set.UID == controllerOf(m) {
			p.set = set
		}
	}
	if p.set != nil {
		for _, d := range s.Deployments {
			if d.UID == controllerOf(p.set) {
				p.deployment = d
			}
		}
	}
	if !s.Misses(MissingLeases) {
		p.fleet = FleetOf(s)
	}
	root := objectOf(KindMachine, m)
	if p.set != nil {
		root = objectOf(KindSet, p.set)
	}
	if p.deployment != nil {
		root = objectOf(KindDeployment, p.deployment)
	}
	p.owner = ownerOf(p.fleet, root, m.Labels[v1alpha1.LabelSlot])
	if p.set != nil {
		p.owner.Set = p.set.Name
	}
	return p
}

// holds returns the troubles above a machine that does not serve, or is being deleted.
func (p parents) holds(s Snapshot, m *v1alpha1.Machine) (all []Trouble) {
	if StateOf(m) == string(v1alpha1.MachineRunning) {
		return nil
	}
	matters := func(t Trouble) bool {
		return slices.Contains([]string{
			string(v1alpha1.MachineDeploymentAPIServerAway), string(v1alpha1.MachineDeploymentCircuitBreakerOpen), v1alpha1.ReasonInvalidClass,
			string(v1alpha1.MachineDeploymentFrozen), string(v1alpha1.MachineDeploymentDeletionsHeld), v1alpha1.ReasonTargetUnavailable,
			string(v1alpha1.MachineDeploymentCreationDelayed), v1alpha1.ReasonInvalidSpec, "Paused",
		}, t.Reason)
	}
	if p.deployment != nil {
		all = append(all, DeploymentTroubles(p.deployment, s.Now)...)
	}
	if p.set != nil {
		all = append(all, SetTroubles(p.set, s.Now)...)
	}
	for _, n := range s.Namespaces {
		if hold := HoldOf(n); hold != "" && n.Name == m.Namespace {
			all = append(all, Trouble{Object: Object{Kind: KindNamespace, Name: n.Name}, Level: Warning, Reason: "DeletionsHeld", Message: hold})
		}
	}
	if p.fleet.Hold != "" {
		of := Object{Kind: KindFleet, Name: p.fleet.Name}
		all = append(all, Trouble{Object: of, Level: Warning, Reason: "DeletionsHeld", Message: p.fleet.Hold})
	}
	return slices.DeleteFunc(all, func(t Trouble) bool { return !matters(t) })
}

// Owner is which replica reconciles an object.
type Owner struct {
	Root Object `json:"root"`
	// Set is the MachineSet of a machine.
	Set string `json:"set,omitempty"`
	// Slot is the number of the slot; nil without a slot label.
	Slot    *int      `json:"slot,omitempty"`
	State   SlotState `json:"state,omitempty"`
	Replica string    `json:"replica,omitempty"`
	Session string    `json:"session,omitempty"`
	Epoch   int64     `json:"epoch,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	// Assigned is the replica that the slot moves to; "" if it does not move.
	Assigned string `json:"assigned,omitempty"`
}

func ownerOf(f Fleet, root Object, label string) Owner {
	o := Owner{Root: root}
	number, err := strconv.Atoi(label)
	if err != nil {
		return o
	}
	o.Slot = &number
	if slot, ok := f.slot(number); ok {
		o.State, o.Replica, o.Session, o.Epoch, o.Since = slot.State, slot.Replica, slot.Session, slot.Epoch, slot.Since
		if slot.Assigned != slot.Replica {
			o.Assigned = slot.Assigned
		}
	}
	return o
}

// Owners lists roots with their owners.
type Owners struct {
	Owners  []Owner   `json:"owners"`
	Missing []Missing `json:"missing,omitempty"`
}

// OwnersOf returns the owners of MachineDeployments, and of MachineSets and Machines without a
// controller. names selects some of them; nil is all.
func OwnersOf(s Snapshot, names []string) Owners {
	f, owners := FleetOf(s), Owners{Owners: []Owner{}, Missing: s.Missing}
	wanted := func(name string) bool { return len(names) == 0 || slices.Contains(names, name) }
	for _, d := range byName(s.Deployments) {
		if wanted(d.Name) {
			owners.Owners = append(owners.Owners, ownerOf(f, objectOf(KindDeployment, d), d.Labels[v1alpha1.LabelSlot]))
		}
	}
	for _, set := range byName(s.Sets) {
		if wanted(set.Name) && controllerOf(set) == "" {
			owners.Owners = append(owners.Owners, ownerOf(f, objectOf(KindSet, set), set.Labels[v1alpha1.LabelSlot]))
		}
	}
	for _, m := range byName(s.Machines) {
		if wanted(m.Name) && (controllerOf(m) == "" || len(names) > 0) {
			owners.Owners = append(owners.Owners, ownerOf(f, objectOf(KindMachine, m), m.Labels[v1alpha1.LabelSlot]))
		}
	}
	return owners
}
