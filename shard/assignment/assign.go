package assignment

import (
	"cmp"
	"math"
	"slices"
)

// Assign returns which slots are assigned to another replica. It is total and deterministic.
// Without a replica that stays nothing can be assigned, and the verdict is empty.
//
// The necessary moves are first: slots return to their home, and slots that are not assigned to a
// replica that stays get one. Then, within limits, the desirable ones: newcomers get their share,
// and replicas that carry too much hand some of it over.
func Assign(c Config, w World) Verdict {
	b := newBoard(c, w)
	if len(b.replicas) == 0 {
		return Verdict{}
	}
	b.returnHome()
	b.place()
	b.leaveUnreached()
	b.probe()
	b.fillNewcomers()
	b.evenOut()
	return b.verdict()
}

// returnHome assigns slots to the replica that held them before it left. No limit applies: this
// undoes the moves that its leaving caused.
func (b *board) returnHome() {
	for s := range b.slots {
		slot := &b.slots[s]
		if r, ok := b.index[b.homeOf(slot)]; ok && b.mayReceive(slot, r) {
			b.move(s, r, Home)
		}
	}
}

// place assigns every slot that is not assigned, and reassigns every slot that its replica does not
// take or cannot serve. The heaviest slots are first, while there are the most choices.
func (b *board) place() {
	var unplaced []int
	for s := range b.slots {
		if why := b.whyUnplaced(s); why != "" {
			b.slots[s].why = why
			unplaced = append(unplaced, s)
			if why == NotAcquired {
				b.replicas[b.slots[s].at].misses = true
			}
		}
	}
	slices.SortStableFunc(unplaced, func(x, y int) int { return cmp.Compare(b.slots[y].cost, b.slots[x].cost) })
	for _, s := range unplaced {
		slot := &b.slots[s]
		r := b.placeFor(slot)
		if r == none {
			slot.why = "" // no other replica may take it: it waits
			continue
		}
		b.move(s, r, slot.why)
	}
}

// placeFor returns the replica for a slot that needs another one; none if it has to stay where it
// is.
func (b *board) placeFor(slot *slot) int {
	holder, lives := b.index[slot.Holder]
	isForced := slot.why != NotAcquired && slot.why != Unfit
	if lives && isForced && b.limit(slot, holder) < Evict && !b.passed(slot, holder) {
		return holder // an earlier assignment has not been carried out: then the slot stays
	}
	// The predicates for replicas that may have it, the best first. A slot that was never served
	// cannot be served worse.
	choices := []func(r int) bool{
		func(r int) bool { return b.mayReceive(slot, r) && len(slot.unreached) > 0 && b.mayTake(r) },
		func(r int) bool {
			return b.isChoice(slot, r) || slot.why == New && b.limit(slot, r) == Probe && !b.passed(slot, r)
		},
		func(r int) bool { return b.limit(slot, r) < Evict && !b.passed(slot, r) },
		func(r int) bool { return b.limit(slot, r) < Evict },
		func(int) bool { return true },
	}
	if !isForced {
		choices = choices[:3]
	}
	for _, may := range choices {
		if r := b.receiver(slot, may); r != none {
			return r
		}
	}
	return none
}

// whyUnplaced returns why a slot needs another replica at once; "" if it does not.
func (b *board) whyUnplaced(s int) Reason {
	slot := &b.slots[s]
	switch {
	case slot.why != "": // it returns to its home
		return ""
	case slot.Assigned == "":
		return New
	case b.leaving[slot.Assigned]:
		return Leaving
	case slot.at == none:
		return Gone
	case slot.UnownedSince != 0 && b.now-slot.UnownedSince >= b.config.NotAcquiredAfter:
		return NotAcquired
	case b.limit(slot, slot.at) == Evict:
		return Unfit
	default:
		return ""
	}
}

// receiver returns the replica for a slot, of those that may have it: the one that the table names
// if the slot does not make it too busy, otherwise the one that is least busy with the slot.
func (b *board) receiver(slot *slot, may func(r int) bool) int {
	best := b.leastBusy(slot, may)
	if best == none {
		return none
	}
	if named := b.named(slot); named != slot.at && may(named) && b.with(slot, named) <= b.config.EvenBelow*b.mean {
		return named
	}
	return best
}

// leastBusy returns the replica that is least busy with the slot, of those that may have it.
func (b *board) leastBusy(slot *slot, may func(r int) bool) int {
	best := none
	for r := range b.replicas {
		if r != slot.at && may(r) && (best == none || b.with(slot, r) < b.with(slot, best)) {
			best = r
		}
	}
	return best
}

// probe assigns one slot to each replica that has to show first that it can serve it: the lightest
// slot of a replica that has others.
func (b *board) probe() {
	for r := range b.replicas {
		if b.replicas[r].misses {
			continue
		}
		lightest := none
		for s := range b.slots {
			slot := &b.slots[s]
			if slot.why != "" || slot.at == none || slot.at == r || !b.isToProbe(slot, r) || b.passed(slot, r) || !b.reaches(slot, r) ||
				b.within(slot, b.config.Window) || b.replicas[slot.at].slots < 2 {
				continue
			}
			if lightest == none || b.isBetterProbe(slot, &b.slots[lightest], r) {
				lightest = s
			}
		}
		if lightest != none {
			b.move(lightest, r, Joined)
		}
	}
}

// isToProbe reports whether a replica has to be probed with a slot like this one.
func (b *board) isToProbe(slot *slot, r int) bool {
	switch b.limit(slot, r) {
	case Probe, Retry:
		return b.replicas[r].slots == 0
	case ProbeMore:
		name := b.replicas[r].Name
		return !slices.ContainsFunc(b.replicas[r].held, func(s int) bool { return b.slots[s].Holder != name })
	case NoLimit, Rest, Evict:
	}
	return false
}

// isBetterProbe reports whether a slot is better than another for probing a replica: its home is
// there, or it is lighter.
func (b *board) isBetterProbe(slot, than *slot, r int) bool {
	name := b.replicas[r].Name
	if home, other := b.homeOf(slot) == name, b.homeOf(than) == name; home != other {
		return home
	}
	return slot.cost < than.cost
}

// A newcomer has less than half of its share of the slots, and less than half of the mean load; it
// is filled up to its share of the load, and to slightly more than its share of the slots at most.
const (
	newcomerBelow = 0.5
	joinAtMost    = 1.2
)

// fillNewcomers gives newcomers their share: first the slots for which the table names them, from
// replicas that carry enough, then what is missing, from the busiest. All moves are to newcomers.
func (b *board) fillNewcomers() {
	newcomer := make([]bool, len(b.replicas))
	for r := range b.replicas {
		newcomer[r] = b.load(r) < newcomerBelow*b.mean && float64(b.replicas[r].slots) < newcomerBelow*b.fairSlots(r)
	}
	if !slices.Contains(newcomer, true) {
		return
	}
	for r, is := range newcomer {
		b.replicas[r].awaitsLoad = is && b.willGetLoad(r)
	}
	budget := b.joinBudget()
	for s := range b.slots {
		slot := &b.slots[s]
		if budget == 0 {
			return
		}
		// A newcomer hands nothing over here: it carries at most the mean.
		r := b.named(slot)
		if !newcomer[r] || !b.mayJoin(slot, r) {
			continue
		}
		if b.without(slot) >= b.mean && b.with(slot, r) <= b.mean && float64(b.replicas[r].slots+1) <= b.fairSlots(r) {
			b.move(s, r, Joined)
			budget--
		}
	}
	spent := map[[2]int]bool{}
	for ; budget > 0; budget-- {
		r, s := b.nextForNewcomer(newcomer, spent)
		if r == none {
			return
		}
		b.move(s, r, Joined)
	}
}

// willGetLoad reports whether there is a slot with machines for a newcomer that has not stayed for
// Window since it moved. Until it has, the newcomer gets so few slots without machines that it
// still is one then; otherwise it would get no load before RestFor.
func (b *board) willGetLoad(r int) bool {
	for s := range b.slots {
		slot := &b.slots[s]
		if slot.Weight > 0 && slot.at != none && b.within(slot, b.config.Window) && b.fits(slot, r) &&
			b.with(slot, r) <= b.config.EvenBelow*b.mean {
			return true
		}
	}
	return false
}

// nextForNewcomer picks the newcomer that has least, and a slot of the busiest replica that has a
// fitting one. spent are the pairs of a newcomer and a replica that has no slot for it. It will not
// have one later either, because all moves are to newcomers: the newcomer only becomes busier, the
// other replica only less busy.
func (b *board) nextForNewcomer(newcomer []bool, spent map[[2]int]bool) (receiver, number int) {
	donors := b.byLoad(true)
	for _, r := range b.byLoad(false) {
		if !newcomer[r] || b.load(r) >= (2-b.config.EvenBelow)*b.mean || float64(b.replicas[r].slots+1) > joinAtMost*b.fairSlots(r) {
			continue
		}
		// The slot whose weight is nearest to the mean weight of the missing ones, so that both shares
		// are reached together.
		missing := max(1, b.fairSlots(r)-float64(b.replicas[r].slots))
		ideal := (b.mean - b.load(r)) * b.replicas[r].Capacity / missing
		for _, donor := range donors {
			if newcomer[donor] || spent[[2]int{r, donor}] {
				continue
			}
			if best := b.nearest(donor, r, ideal); best != none {
				return r, best
			}
			spent[[2]int{r, donor}] = true
		}
	}
	return none, none
}

// nearest returns the slot of a donor that may move to a newcomer and whose cost is nearest to the
// ideal one; none if there is none.
func (b *board) nearest(donor, newcomer int, ideal float64) int {
	best, distance := none, 0.0
	for _, s := range b.replicas[donor].held {
		slot := &b.slots[s]
		if !b.mayJoin(slot, newcomer) || b.with(slot, newcomer) > b.config.EvenBelow*b.mean {
			continue
		}
		if d := math.Abs(float64(slot.cost) - ideal); best == none || d < distance {
			best, distance = s, d
		}
	}
	return best
}

// evenOut moves slots from each replica that carries too much until it does not. While a replica is
// awaited, only the slots that wait for it move: the others are where they belong once it has
// returned.
func (b *board) evenOut() {
	stuck := make([]bool, len(b.replicas))
	for budget := b.loadBudget(); budget > 0; {
		donor := none
		for _, r := range b.byLoad(true) {
			if !stuck[r] && b.load(r) > b.config.UnevenAbove*b.mean {
				donor = r
				break
			}
		}
		if donor == none {
			return
		}
		for ; budget > 0 && b.load(donor) > b.config.EvenBelow*b.mean; budget-- {
			s, r := b.nextToMove(donor)
			if s == none {
				stuck[donor] = true
				break
			}
			b.move(s, r, Load)
		}
	}
}

// nextToMove picks the slot whose move leaves the busier of donor and receiver least busy.
func (b *board) nextToMove(donor int) (number, receiver int) {
	number = none
	least := 0.0
	for _, s := range b.replicas[donor].held {
		slot := &b.slots[s]
		if !b.mayMove(slot) {
			continue
		}
		r := b.leastBusy(slot, func(r int) bool { return b.mayReceive(slot, r) })
		if r == none || !b.improves(slot, r) {
			continue
		}
		if busier := max(b.without(slot), b.with(slot, r)); number == none || busier < least {
			number, least = s, busier
		}
	}
	if number == none {
		return none, none
	}
	moved := &b.slots[number]
	return number, b.receiver(moved, func(r int) bool { return b.mayReceive(moved, r) })
}
