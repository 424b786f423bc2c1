package model

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
)

// Fleet is the state of replicas and slots.
type Fleet struct {
	Name    string `json:"name"`
	Leader  string `json:"leader,omitempty"`
	ShardBy string `json:"shardBy,omitempty"`
	Hold    string `json:"hold,omitempty"`
	// Replicas are the first ones, those that live before others. All is how many there are, of which
	// Lives live.
	Replicas []Replica `json:"replicas"`
	All      int       `json:"all"`
	Lives    int       `json:"lives"`
	// Slots by their numbers. Holder and Assigned are indexes in Replicas, -1 without one there.
	Slots []Slot `json:"slots"`
	Held  int    `json:"held"`
}

// Replica is a replica. State is "Lives", "Leads", "Unfit", "Leaving", "Silent" or "Left".
type Replica struct {
	Name     string  `json:"name"`
	State    string  `json:"state"`
	Why      string  `json:"why,omitempty"`
	Capacity float64 `json:"capacity"`
	Slots    int     `json:"slots"`
	// Machines is how many machines are in the slots that it holds. The weight of a slot, by which
	// slots are distributed, is another number.
	Machines int `json:"machines"`
}

// Slot is a slot. Held is the most frequent state, and is "".
type Slot struct {
	Number   int    `json:"n"`
	State    string `json:"s,omitempty"`
	Holder   int    `json:"h"`
	Assigned int    `json:"a"`
	Machines int    `json:"m,omitempty"`
}

// machinesBySlot counts machines by their slots; those without one are left out.
func machinesBySlot(machines []*v1alpha1.Machine) map[int]int {
	bySlot := map[int]int{}
	for _, m := range machines {
		if slot, err := strconv.Atoi(m.Labels[v1alpha1.LabelSlot]); err == nil {
			bySlot[slot]++
		}
	}
	return bySlot
}

func fleetOf(f view.Fleet, machines []*v1alpha1.Machine) Fleet {
	is := Fleet{
		Name: f.Name, Leader: f.Leader, ShardBy: f.ShardBy, Hold: bounded.Text(f.Hold, mostText), Replicas: []Replica{}, Slots: []Slot{},
	}
	is.All = len(f.Replicas)
	for _, r := range f.Replicas {
		if r.Lives {
			is.Lives++
		}
	}
	f.Replicas = shownReplicas(f.Replicas)
	at := map[string]int{}
	for i, r := range f.Replicas {
		at[r.Name] = i
		is.Replicas = append(is.Replicas, replicaOf(r))
	}
	index := func(replica string) int {
		if i, known := at[replica]; known {
			return i
		}
		return -1
	}
	bySlot := machinesBySlot(machines)
	for _, slot := range f.Slots {
		one := Slot{Number: slot.Number, Holder: index(slot.Replica), Assigned: index(slot.Assigned), Machines: bySlot[slot.Number]}
		if one.Holder >= 0 && slot.Session == f.Replicas[one.Holder].Session { // as its slots are counted
			is.Replicas[one.Holder].Machines += one.Machines
		}
		switch slot.State {
		case view.Held:
			is.Held++
		case view.Moving:
			is.Held++
			one.State = string(slot.State)
		case view.Silent, view.Quarantined, view.Unowned:
			one.State = string(slot.State)
		}
		is.Slots = append(is.Slots, one)
	}
	return is
}

// shownReplicas returns the replicas that are shown, in their order: all, or those that live before
// others.
func shownReplicas(all []view.Replica) []view.Replica {
	if len(all) <= MostReplicas {
		return all
	}
	shown := slices.SortedStableFunc(slices.Values(all), func(a, b view.Replica) int {
		switch {
		case a.Lives == b.Lives:
			return 0
		case a.Lives:
			return -1
		}
		return 1
	})[:MostReplicas]
	slices.SortFunc(shown, func(a, b view.Replica) int { return cmp.Compare(a.Name, b.Name) })
	return shown
}

// silentFor is from when on the silence of a replica is shown: renewals are two seconds apart.
const silentFor = 5 * time.Second

func replicaOf(r view.Replica) Replica {
	is := Replica{Name: r.Name, State: "Lives", Capacity: r.Capacity, Slots: r.Slots}
	if math.IsNaN(r.Capacity) || math.IsInf(r.Capacity, 0) {
		is.Capacity = 0 // JSON has no such numbers, and a Lease any text
	}
	switch {
	case r.Session == "":
		is.State = "Left"
	case !r.Lives:
		is.State, is.Why = "Silent", "its session Lease was not renewed for "+r.Silent.Duration.String()
	case r.Unfit != "":
		is.State, is.Why = "Unfit", bounded.Text(r.Unfit, mostText)
	case r.Leaving:
		is.State, is.Why = "Leaving", "it hands over its slots and exits"
	case r.Leads:
		is.State = "Leads"
	}
	if r.Lives && r.Silent.Duration >= silentFor {
		is.Why = "its session Lease was not renewed for " + r.Silent.Duration.String()
	}
	return is
}
