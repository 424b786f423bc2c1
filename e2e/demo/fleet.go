package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// fleet is the replicas with their slots.
type fleet struct {
	Replicas []replica // by name
	// Slots are all slots, by number.
	Slots map[int]slotLease
}

// replica is a process of the fleet that lives, or is not known to be dead.
type replica struct {
	Name, Session string
	Leads         bool
	Slots         int
	// Machines are those in its slots.
	Machines []v1alpha1.MachinePhase
}

// machine is a Machine.
type machine struct {
	Name  string
	Phase v1alpha1.MachinePhase
	// Slot is its slot label.
	Slot string
}

// fleet returns the replicas with their slots and machines.
func (j *journal) fleet(machines []machine) fleet {
	found := map[string]*replica{}
	for name, session := range j.sessions {
		if session != "" {
			found[session] = &replica{Name: name, Session: session, Leads: session == j.leader}
		}
	}
	f := fleet{Slots: maps.Clone(j.slots)}
	for _, s := range j.slots {
		if holder, lives := found[s.holder]; lives {
			holder.Slots++
		}
	}
	for _, m := range machines {
		number, err := strconv.Atoi(m.Slot)
		if err != nil {
			continue // no slot yet
		}
		if holder, lives := found[j.slots[number].holder]; lives {
			holder.Machines = append(holder.Machines, m.Phase)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(j.sessions)) {
		if r, lives := found[j.sessions[name]]; lives {
			slices.SortFunc(r.Machines, byLife)
			f.Replicas = append(f.Replicas, *r)
		}
	}
	return f
}

// busiest is the replica with the most machines among those that do not lead: without a leader a
// take-over takes longer. If there is only the leader, it is that. Errors: there are no replicas.
func (f fleet) busiest() (replica, error) {
	candidates := slices.DeleteFunc(slices.Clone(f.Replicas), func(r replica) bool { return r.Leads })
	if len(candidates) == 0 {
		candidates = f.Replicas
	}
	if len(candidates) == 0 {
		return replica{}, errors.New("choose a replica: expected some that live, found none")
	}
	return slices.MaxFunc(candidates, func(a, b replica) int {
		return cmp.Or(cmp.Compare(len(a.Machines), len(b.Machines)), cmp.Compare(a.Slots, b.Slots))
	}), nil
}

// machineOf returns a machine in a slot of a replica; "" if there is none.
func (p picture) machineOf(r replica) string {
	for _, m := range p.Machines {
		if p.holds(r, m.Name) {
			return m.Name
		}
	}
	return ""
}

// ownerOf returns the replica that holds the slot of a machine; none if it is not known.
func (p picture) ownerOf(name string) (owner replica) {
	for _, r := range p.Fleet.Replicas {
		if p.holds(r, name) {
			return r
		}
	}
	return replica{}
}

// epochOf returns the epoch of the slot of a machine; 0 if it is not known.
func (p picture) epochOf(name string) int64 {
	for _, m := range p.Machines {
		if number, err := strconv.Atoi(m.Slot); m.Name == name && err == nil {
			return p.Fleet.Slots[number].epoch
		}
	}
	return 0
}

// holds reports whether a replica holds the slot of a machine.
func (p picture) holds(r replica, name string) bool {
	return slices.ContainsFunc(p.Machines, func(m machine) bool {
		number, err := strconv.Atoi(m.Slot)
		return m.Name == name && err == nil && p.Fleet.Slots[number].holder == r.Session
	})
}

// heldBy counts the slots that these replicas hold and that are assigned to them, and those of the
// replicas that hold their share. The leader fills a replica that has less than half of its part of
// the slots and of the machines, so half of either counts. A dead session holds nothing, also
// where Leases still name it.
func (f fleet) heldBy(replicas []string, dead string) (held, shares int) {
	machines := 0
	for _, r := range f.Replicas {
		machines += len(r.Machines)
	}
	for _, r := range f.Replicas {
		if r.Session == dead || !slices.Contains(replicas, r.Name) {
			continue
		}
		own := 0
		for _, s := range f.Slots {
			if s.holder == r.Session && s.atRest() {
				own++
			}
		}
		held += own
		isHalf := func(part, all int) bool { return part > 0 && 2*part*len(replicas) >= all }
		if isHalf(own, slots) || own > 0 && isHalf(len(r.Machines), machines) {
			shares++
		}
	}
	return held, shares
}

// facts returns a row for each replica; dead is a session that was killed.
func (f fleet) facts(dead string) []fact {
	var rows []fact
	for _, r := range f.Replicas {
		words := []string{several(r.Slots, "slot")}
		if n := len(r.Machines); n > 0 {
			words = append(words, several(n, "machine"))
		}
		if r.Leads {
			words = append(words, "leads")
		}
		text := listed(words)
		if r.Session == dead {
			text = "killed; it had " + text
		}
		rows = append(rows, fact{Label: r.Name, Symbols: append([]v1alpha1.MachinePhase{}, r.Machines...), Text: text})
	}
	return rows
}

// ownersFact returns a row with the number of machines of each replica.
func (f fleet) ownersFact() fact {
	var words []string
	for _, r := range f.Replicas {
		if n := len(r.Machines); n > 0 {
			words = append(words, fmt.Sprintf("%s of %d", r.Name, n))
		}
	}
	return fact{Label: "owners", Text: listed(words)}
}

// numbersShown is how many slots of a group are listed by number.
const numbersShown = 5

// stories returns the moves as text, one line for all slots with the same replicas and manner.
func stories(moves []move, machines []machine) []string {
	type way struct {
		from, to string
		how      manner
	}
	groups := map[way][]move{}
	for _, m := range moves {
		w := way{m.from, m.to, m.how}
		groups[w] = append(groups[w], m)
	}
	ways := slices.SortedFunc(maps.Keys(groups), func(a, b way) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to), cmp.Compare(a.how, b.how))
	})
	var lines []string
	for _, w := range ways {
		lines = append(lines, fmt.Sprintf("%s → %s  %s", w.from, w.to, story(w.how, groups[w], machines)))
	}
	return lines
}

func story(how manner, moves []move, machines []machine) string {
	var longest time.Duration
	var numbers []int
	for _, m := range moves {
		longest = max(longest, m.took)
		numbers = append(numbers, m.slot)
	}
	slices.Sort(numbers)
	had := 0
	for _, m := range machines {
		if number, err := strconv.Atoi(m.Slot); err == nil && slices.Contains(numbers, number) {
			had++
		}
	}
	text := several(len(numbers), "slot")
	if had > 0 {
		text += " with " + several(had, "machine")
	}
	took := fmt.Sprintf("%.2f s", longest.Seconds())
	switch {
	case how != handedOver:
		took += " after the kill"
	case len(moves) > 1:
		took = "each within " + took
	default:
		took = "within " + took
	}
	return fmt.Sprintf("%s %s, %s: %s", text, how, took, shortly(numbers))
}

// shortly lists the first numbers.
func shortly(numbers []int) string {
	var words []string
	for _, n := range numbers[:min(len(numbers), numbersShown)] {
		words = append(words, strconv.Itoa(n))
	}
	if len(numbers) > numbersShown {
		words = append(words, "…")
	}
	return strings.Join(words, ", ")
}

// several is a number of things.
func several(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
