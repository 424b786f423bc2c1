package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// defaultTakeOver is for how long a session may be silent where no Lease records it.
const defaultTakeOver = 15 * time.Second

// Fleet is the state of replicas and slots, as their Leases show it.
type Fleet struct {
	Name string `json:"name"`
	// Leader is the replica that leads; "" if there is none.
	Leader string `json:"leader,omitempty"`
	// ShardBy is the part of a root's key that decides its slot.
	ShardBy string `json:"shardBy,omitempty"`
	// Hold is the reason by which deletions are held in all namespaces; "" if they are not.
	Hold     string    `json:"hold,omitempty"`
	Replicas []Replica `json:"replicas"`
	Slots    []Slot    `json:"slots"`
}

// Replica is a replica, as its session Lease shows it.
type Replica struct {
	Name    string `json:"name"`
	Session string `json:"session,omitempty"`
	// Lives reports whether its Lease has a holder and was renewed within the time of a take-over.
	Lives bool `json:"lives"`
	// Silent is for how long the Lease was not renewed, by the clock of the reader.
	Silent  metav1.Duration `json:"silent"`
	Leads   bool            `json:"leads,omitempty"`
	Leaving bool            `json:"leaving,omitempty"`
	// Unfit is why the replica cannot do its work; "" if it can. UnfitSince is its own time of
	// that.
	Unfit      string    `json:"unfit,omitempty"`
	UnfitSince time.Time `json:"unfitSince,omitzero"`
	Capacity   float64   `json:"capacity"`
	// Slots is how many slots it holds, and Weight their weight: more than the machines where some
	// fail.
	Slots  int   `json:"slots"`
	Weight int64 `json:"weight"`
}

// SlotState is the state of a slot.
type SlotState string

// The states.
const (
	// Held means that a session which lives holds the slot.
	Held SlotState = "Held"
	// Moving means that it is held, and assigned to another replica.
	Moving SlotState = "Moving"
	// Silent means that its holder does not renew its session Lease any more, or has another
	// session.
	Silent SlotState = "HolderSilent"
	// Quarantined means that it has no holder, and waits until sessions have confirmed.
	Quarantined SlotState = "Quarantine"
	// Unowned means that it has no holder.
	Unowned SlotState = "Unowned"
)

// Slot is a slot, as its Lease shows it.
type Slot struct {
	Number int       `json:"number"`
	State  SlotState `json:"state"`
	// Replica and Session hold the slot.
	Replica string `json:"replica,omitempty"`
	Session string `json:"session,omitempty"`
	Epoch   int64  `json:"epoch"`
	// Since is when its holder has acquired it, or it was last written without one.
	Since time.Time `json:"since,omitzero"`
	// Assigned is the replica that should hold it.
	Assigned string `json:"assigned,omitempty"`
	// Home is the replica that gets it back when it returns.
	Home   string `json:"home,omitempty"`
	Weight int64  `json:"weight"`
	// Quarantine are the sessions that have to confirm, or be dead, before it can be acquired.
	Quarantine []string `json:"quarantine,omitempty"`
}

// FleetOf returns the state of a fleet from the Leases of its namespace.
func FleetOf(s Snapshot) Fleet {
	f := Fleet{Name: s.FleetName, Replicas: []Replica{}, Slots: []Slot{}}
	slots, takeOver := 0, defaultTakeOver
	for _, l := range s.Leases {
		if l.Name != membership.LeaderLeaseName(s.FleetName) {
			continue
		}
		slots, _ = strconv.Atoi(l.Annotations[v1alpha1.AnnotationSlots])
		if d, err := time.ParseDuration(l.Annotations[v1alpha1.AnnotationTakeOver]); err == nil {
			takeOver = d
		}
		f.ShardBy, f.Hold = l.Annotations[v1alpha1.AnnotationShardBy], HoldOf(l)
		if replica, ok := membership.ReplicaOf(membership.Holder(l)); ok && s.Now.Sub(renewed(l)) < takeOver {
			f.Leader = replica
		}
	}
	sessions := map[string]bool{} // that live
	for _, l := range byName(s.Leases) {
		if name, ok := membership.ReplicaOfLease(s.FleetName, l.Name); ok && l.Labels[v1alpha1.LabelLease] == v1alpha1.LeaseOfSession {
			r := replicaOf(l, name, s.Now, takeOver)
			r.Leads = f.Leader == name && r.Lives
			sessions[r.Session] = r.Lives
			f.Replicas = append(f.Replicas, r)
		}
	}
	for _, l := range byName(s.Leases) {
		if number, ok := membership.SlotOfLease(s.FleetName, l.Name, slots); ok {
			f.Slots = append(f.Slots, slotOf(l, number, sessions))
		}
	}
	weigh(f.Slots, s.Leases)
	for i := range f.Replicas {
		f.Replicas[i].addSlots(f.Slots)
	}
	return f
}

// weigh sets the weights that sessions report of their slots. A slot Lease has the one of its last
// hand-over.
func weigh(slots []Slot, leases []*coordinationv1.Lease) {
	for _, l := range leases {
		for entry := range strings.SplitSeq(l.Annotations[v1alpha1.AnnotationWeights], ",") {
			number, weight, _ := strings.Cut(entry, ":")
			n, err1 := strconv.Atoi(number)
			w, err2 := strconv.ParseInt(weight, 10, 64)
			i := slices.IndexFunc(slots, func(s Slot) bool { return s.Number == n && s.Session == membership.Holder(l) })
			if err1 == nil && err2 == nil && i >= 0 {
				slots[i].Weight = w
			}
		}
	}
}

func (r *Replica) addSlots(slots []Slot) {
	for _, slot := range slots {
		if slot.Session == r.Session && r.Session != "" {
			r.Slots++
			r.Weight += slot.Weight
		}
	}
}

func replicaOf(l *coordinationv1.Lease, name string, now time.Time, takeOver time.Duration) Replica {
	r := Replica{Name: name, Session: membership.Holder(l), Capacity: 1, Leaving: l.Annotations[v1alpha1.AnnotationLeaving] != ""}
	silent := now.Sub(renewed(l)).Round(time.Second)
	r.Silent.Duration = max(silent, 0)
	r.Lives = r.Session != "" && silent < takeOver
	if capacity, err := strconv.ParseFloat(l.Annotations[v1alpha1.AnnotationCapacity], 64); err == nil {
		r.Capacity = capacity
	}
	fitness, err := membership.ParseFitness(l.Annotations[v1alpha1.AnnotationFitness])
	if r.Session != "" && (err != nil || !fitness.IsFit()) {
		r.Unfit, r.UnfitSince = cmp.Or(fitness.Reason, "it cannot do its work"), fitness.Since
	}
	return r
}

func slotOf(l *coordinationv1.Lease, number int, sessions map[string]bool) Slot {
	slot := Slot{
		Number: number, Session: membership.Holder(l), Epoch: membership.Transitions(l), Since: renewed(l), State: Held,
		Assigned: l.Annotations[v1alpha1.AnnotationAssignedReplica], Home: l.Annotations[v1alpha1.AnnotationHome],
	}
	if l.Spec.AcquireTime != nil && slot.Session != "" {
		slot.Since = l.Spec.AcquireTime.Time
	}
	slot.Replica, _ = membership.ReplicaOf(slot.Session)
	slot.Weight, _ = strconv.ParseInt(l.Annotations[v1alpha1.AnnotationWeight], 10, 64)
	if q := l.Annotations[v1alpha1.AnnotationQuarantine]; q != "" && slot.Session == "" {
		slot.Quarantine = strings.Split(q, ",")
	}
	switch {
	case slot.Session == "" && (len(slot.Quarantine) > 0 || l.Annotations[v1alpha1.AnnotationLeaseUID] != string(l.UID)):
		slot.State = Quarantined
	case slot.Session == "":
		slot.State = Unowned
	case !sessions[slot.Session]:
		slot.State = Silent
	case slot.Assigned != "" && slot.Assigned != slot.Replica:
		slot.State = Moving
	}
	return slot
}

// renewed returns when a Lease was last renewed; its creation if it never was.
func renewed(l *coordinationv1.Lease) time.Time {
	if l.Spec.RenewTime != nil {
		return l.Spec.RenewTime.Time
	}
	return l.CreationTimestamp.Time
}

// HoldOf returns the reason by which an object holds deletions; "" if it does not.
func HoldOf(o metav1.Object) string {
	value := strings.TrimSpace(o.GetAnnotations()[v1alpha1.AnnotationHoldDeletions])
	if value == "false" {
		return ""
	}
	return value
}

// troubles returns the troubles of a fleet.
func (f Fleet) troubles() (all []Trouble) {
	fleet := Object{Kind: KindFleet, Name: f.Name}
	if f.Leader == "" {
		all = append(all, Trouble{
			Object: fleet, Level: Error, Reason: "NoLeader",
			Message: "no session leads, so that no slot is assigned or taken over",
		})
	}
	if f.Hold != "" {
		all = append(all, Trouble{
			Object: fleet, Level: Warning, Reason: "DeletionsHeld",
			Message: "deletions are held in all namespaces by an annotation of the leader Lease: " + f.Hold,
		})
	}
	for _, r := range f.Replicas {
		of := Object{Kind: KindReplica, Name: r.Name}
		switch {
		case r.Session == "": // it has left
		case !r.Lives:
			all = append(all, Trouble{
				Object: of, Level: Warning, Reason: "Silent",
				Message: fmt.Sprintf("its session Lease was not renewed for %s", r.Silent.Duration),
			})
		case r.Unfit != "":
			all = append(all, Trouble{Object: of, Level: Warning, Reason: "Unfit", Message: r.Unfit, Since: r.UnfitSince})
		case r.Leaving:
			all = append(all, Trouble{Object: of, Level: Note, Reason: "Leaving", Message: "it hands over its slots and exits"})
		}
	}
	return append(all, f.slotTroubles()...)
}

func (f Fleet) slotTroubles() (all []Trouble) {
	byState := map[SlotState][]int{}
	for _, slot := range f.Slots {
		byState[slot.State] = append(byState[slot.State], slot.Number)
	}
	for _, known := range []struct {
		state   SlotState
		level   Level
		message string
	}{
		{Unowned, Error, "have no holder; their objects are not reconciled"},
		{Silent, Error, "are held by sessions that are silent; they are taken over when these are dead"},
		{Quarantined, Warning, "are in quarantine: sessions have to confirm that they have nothing of them in flight"},
		{Moving, Note, "are handed over to other replicas"},
	} {
		if numbers := byState[known.state]; len(numbers) > 0 {
			all = append(all, Trouble{
				Object: Object{Kind: KindFleet, Name: f.Name}, Level: known.level, Reason: "Slots" + string(known.state),
				Message: fmt.Sprintf("%d of %d slots (%s) %s", len(numbers), len(f.Slots), some(numbers), known.message),
			})
		}
	}
	return all
}

// some returns the first numbers of a list.
func some(numbers []int) string {
	const most = 5
	var texts []string
	for i, n := range numbers {
		if i == most {
			texts = append(texts, "…")
			break
		}
		texts = append(texts, strconv.Itoa(n))
	}
	return strings.Join(texts, ", ")
}

// slot returns a slot by its number; ok is false if the fleet has none of it.
func (f Fleet) slot(number int) (slot Slot, ok bool) {
	i := slices.IndexFunc(f.Slots, func(s Slot) bool { return s.Number == number })
	if i < 0 {
		return Slot{}, false
	}
	return f.Slots[i], true
}
