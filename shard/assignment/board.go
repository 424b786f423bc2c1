package assignment

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// none is the index of no replica, and of no slot.
const none = -1

// A machine costs ten, and a slot one: enough to spread empty slots too, and too little for them to
// outweigh machines. A weight that would make sums overflow is invalid and is cut.
const (
	costOfMachine = 10
	costOfSlot    = 1
	maxWeight     = 1 << 40
)

// board is an assignment in progress.
type board struct {
	config   Config
	now      time.Duration
	slots    []slot
	replicas []replica // that stay, by name
	index    map[string]int
	leaving  map[string]bool
	mean     float64  // load of a replica
	capacity float64  // of all
	awaited  bool     // some slot has a home that is not there
	table    []string // computed at its first use
	accounts []Account
}

// slot is a Slot with its assignment.
type slot struct {
	Slot
	number int
	cost   int64
	at     int    // index of the assigned replica if it stays, as decided so far
	why    Reason // of its move; "" when it does not move
	// unreached are the replicas that do not reach an account of the slot; nil for none.
	unreached map[string]bool
}

type replica struct {
	Replica
	slots  int
	weight int64
	cost   int64
	// held are the numbers of the slots that are assigned to it, sorted.
	held []int
	// misses is true if it does not take a slot: it is then assigned no other by choice.
	misses bool
	// awaitsLoad is true of a newcomer that will get slots with machines when these have stayed for
	// Window.
	awaitsLoad bool
}

func newBoard(c Config, w World) *board {
	b := &board{config: c, now: w.Now, index: map[string]int{}, leaving: map[string]bool{}}
	known := slices.SortedFunc(slices.Values(w.Replicas), func(x, y Replica) int { return cmp.Compare(x.Name, y.Name) })
	for _, r := range known {
		if !(r.Capacity > 0 && r.Capacity <= math.MaxFloat32) { // NaN too
			r.Capacity = 1
		}
		if r.Leaving {
			b.leaving[r.Name] = true
			continue
		}
		b.index[r.Name] = len(b.replicas)
		b.replicas = append(b.replicas, replica{Replica: r})
		b.capacity += r.Capacity
	}
	total := int64(0)
	for number, known := range w.Slots {
		known.Weight = min(max(known.Weight, 0), maxWeight)
		s := slot{Slot: known, number: number, cost: known.Weight*costOfMachine + costOfSlot, at: none}
		total += s.cost
		if r, ok := b.index[known.Assigned]; ok {
			s.at = r
			b.replicas[r].add(&s, 1)
			b.replicas[r].held = append(b.replicas[r].held, number)
		}
		b.slots = append(b.slots, s)
		b.awaited = b.awaited || b.awaits(&s)
	}
	b.mean = float64(total) / b.capacity
	b.addAccounts(w.Accounts)
	return b
}

func (r *replica) add(s *slot, sign int64) {
	r.slots += int(sign)
	r.weight += sign * s.Weight
	r.cost += sign * s.cost
}

func (b *board) move(s, to int, why Reason) {
	slot := &b.slots[s]
	if slot.at != none {
		b.replicas[slot.at].add(slot, -1)
		held := &b.replicas[slot.at].held
		at, _ := slices.BinarySearch(*held, s)
		*held = slices.Delete(*held, at, at+1)
	}
	slot.at, slot.why = to, why
	b.awaited = b.awaited || why == Leaving
	b.replicas[to].add(slot, 1)
	held := &b.replicas[to].held
	at, _ := slices.BinarySearch(*held, s)
	*held = slices.Insert(*held, at, s)
}

// load returns the load of a replica; with, the load with one slot more; without, that of a slot's
// replica without the slot.
func (b *board) load(r int) float64 { return float64(b.replicas[r].cost) / b.replicas[r].Capacity }

func (b *board) with(s *slot, r int) float64 {
	return float64(b.replicas[r].cost+s.cost) / b.replicas[r].Capacity
}

func (b *board) without(s *slot) float64 {
	return float64(b.replicas[s.at].cost-s.cost) / b.replicas[s.at].Capacity
}

// fairSlots returns a replica's share of the slots.
func (b *board) fairSlots(r int) float64 {
	return float64(len(b.slots)) * b.replicas[r].Capacity / b.capacity
}

// byLoad returns the replicas in the order of their load, equal ones by name.
func (b *board) byLoad(busiestFirst bool) []int {
	order := make([]int, len(b.replicas))
	for r := range order {
		order[r] = r
	}
	slices.SortStableFunc(order, func(x, y int) int {
		if busiestFirst {
			x, y = y, x
		}
		return cmp.Compare(b.load(x), b.load(y))
	})
	return order
}

// named returns the replica that the consistent-hash table names for a slot.
func (b *board) named(s *slot) int {
	if b.table == nil {
		b.table = Table(len(b.slots), slices.Collect(maps.Keys(b.index)))
	}
	return b.index[b.table[s.number]]
}

// homeOf returns the replica that a slot returns to, "" if it has no home, is there or has waited
// too long.
func (b *board) homeOf(s *slot) string {
	if s.HomeUntil <= b.now || s.Home == s.Assigned {
		return ""
	}
	return s.Home
}

// awaits reports whether the slot has a home that is still absent.
func (b *board) awaits(s *slot) bool {
	home := b.homeOf(s)
	_, there := b.index[home]
	return home != "" && !there
}

func (b *board) passed(s *slot, r int) bool { return s.Passed[b.replicas[r].Name] > b.now }

func (b *board) limit(s *slot, r int) Limit { return b.replicas[r].Limits[s.Target] }

// isChoice reports whether the slot may move to a replica while there is a choice, regardless of
// accounts.
func (b *board) isChoice(s *slot, r int) bool {
	return b.limit(s, r) == NoLimit && !b.passed(s, r) && !b.replicas[r].misses
}

// mayReceive reports whether the slot may move to a replica while there is a choice.
func (b *board) mayReceive(s *slot, r int) bool { return b.isChoice(s, r) && b.reaches(s, r) }

// within reports whether the slot was moved for joining or load less than d ago.
func (b *board) within(s *slot, d time.Duration) bool { return s.Moved != 0 && b.now-s.Moved < d }

// improves reports whether with the move no replica will be as busy as the donor is. An empty slot
// changes too little for that: it moves only to a replica that has fewer slots.
func (b *board) improves(s *slot, r int) bool {
	donor, receiver := &b.replicas[s.at], &b.replicas[r]
	fewer := float64(receiver.slots+1)/receiver.Capacity < float64(donor.slots)/donor.Capacity
	return b.with(s, r) < b.load(s.at) && (s.Weight > 0 || fewer)
}

// mayJoin reports whether the slot may move to a newcomer.
func (b *board) mayJoin(s *slot, r int) bool {
	return b.fits(s, r) && !b.within(s, b.config.Window) && (s.Weight > 0 || !b.replicas[r].awaitsLoad || !b.isHalfFull(r))
}

// fits reports whether a newcomer may get the slot, at once or when the slot has stayed for Window.
func (b *board) fits(s *slot, r int) bool {
	return s.why == "" && b.mayReceive(s, r) && b.improves(s, r)
}

// isHalfFull reports whether with one more slot a replica has too many for a newcomer.
func (b *board) isHalfFull(r int) bool {
	return float64(b.replicas[r].slots+1) >= newcomerBelow*b.fairSlots(r)
}

// mayMove reports whether the slot may move for load.
func (b *board) mayMove(s *slot) bool {
	return s.why == "" && !b.within(s, b.config.RestFor) && (!b.awaited || b.awaits(s))
}

// joinBudget and loadBudget return how many slots may still move in this window.
func (b *board) joinBudget() int { return b.budget(b.config.JoinShare) }

func (b *board) loadBudget() int { return b.budget(b.config.LoadShare) }

func (b *board) budget(share float64) int {
	left := max(1, int(share*float64(len(b.slots))))
	for s := range b.slots {
		if slot := &b.slots[s]; b.within(slot, b.config.Window) || slot.why == Joined {
			left--
		}
	}
	return max(0, left)
}
