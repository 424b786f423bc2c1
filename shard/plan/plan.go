package plan

import (
	"cmp"
	"math"
	"slices"
)

// Plan says which slots get another preferred holder. It is total and deterministic. Without a replica that stays there is
// nothing to plan, and the verdict is empty.
//
// First what must be: slots go home, and slots without a preferred holder that stays get one. Then, within limits, what
// should be: newcomers get their share, and who carries too much gives some of it away.
func Plan(c Config, w World) Verdict {
	b := newBoard(c, w)
	if len(b.replicas) == 0 {
		return Verdict{}
	}
	b.goHome()
	b.place()
	b.fillNewcomers()
	b.evenOut()
	return b.verdict()
}

// goHome sends slots back to where they were before their holder left. No limit holds it up: it undoes what leaving did.
func (b *board) goHome() {
	for s := range b.slots {
		slot := &b.slots[s]
		if r, ok := b.index[b.homeOf(slot)]; ok && r != slot.at && !b.passed(slot, r) {
			b.move(s, r, Home)
		}
	}
}

// place gives a preferred holder to every slot that has none, and another one to every slot that its own does not take.
// The heaviest go first, while there is room to choose.
func (b *board) place() {
	var homeless []int
	for s := range b.slots {
		if why := b.whyHomeless(s); why != "" {
			b.slots[s].why = why
			homeless = append(homeless, s)
		}
	}
	slices.SortStableFunc(homeless, func(x, y int) int { return cmp.Compare(b.slots[y].cost, b.slots[x].cost) })
	for _, s := range homeless {
		slot := &b.slots[s]
		if holder, ok := b.index[slot.Holder]; ok && slot.why != Unclaimed && !b.passed(slot, holder) {
			b.move(s, holder, slot.why) // an earlier plan has not been carried out: then the slot stays
			continue
		}
		r := b.receiver(slot)
		if r == nobody && slot.why != Unclaimed {
			slot.Passed = nil // all were passed over, and one it must be
			r = b.receiver(slot)
		}
		if r == nobody {
			slot.why = "" // no other replica may take it: it waits
			continue
		}
		b.move(s, r, slot.why)
	}
}

// whyHomeless says why a slot needs another preferred holder at once; "" when it does not.
func (b *board) whyHomeless(s int) Reason {
	slot := &b.slots[s]
	switch {
	case slot.why != "": // it goes home
		return ""
	case slot.Preferred == "":
		return New
	case slot.at == nobody && b.leaving[slot.Preferred]:
		return Leaving
	case slot.at == nobody:
		return Gone
	case slot.UnownedSince != 0 && b.now-slot.UnownedSince >= b.config.UnclaimedAfter:
		return Unclaimed
	default:
		return ""
	}
}

// receiver of a slot: whom the table names if that does not make it too busy, else the one that is least busy with it.
func (b *board) receiver(slot *slot) int {
	best := b.leastBusy(slot)
	if best == nobody {
		return nobody
	}
	if named := b.named(slot); named != slot.at && !b.passed(slot, named) && b.with(slot, named) <= b.config.EvenBelow*b.mean {
		return named
	}
	return best
}

// leastBusy is the replica that is least busy with the slot, of those that were not passed over for it.
func (b *board) leastBusy(slot *slot) int {
	best := nobody
	for r := range b.replicas {
		if r != slot.at && !b.passed(slot, r) && (best == nobody || b.with(slot, r) < b.with(slot, best)) {
			best = r
		}
	}
	return best
}

// A newcomer has less than half of its share of the slots, and less than half of the mean load; it is filled up to its
// share of the load, and to at most a little more than its share of the slots.
const (
	newcomerBelow = 0.5
	joinAtMost    = 1.2
)

// fillNewcomers gives newcomers their share: first what the table names for them, taken from those who can spare it,
// then what is missing, from the busiest. All moves go to newcomers.
func (b *board) fillNewcomers() {
	newcomer := make([]bool, len(b.replicas))
	for r := range b.replicas {
		newcomer[r] = b.load(r) < newcomerBelow*b.mean && float64(b.replicas[r].slots) < newcomerBelow*b.fairSlots(r)
	}
	if !slices.Contains(newcomer, true) {
		return
	}
	budget := b.joinBudget()
	for s := range b.slots {
		slot := &b.slots[s]
		if budget == 0 || !slices.Contains(newcomer, true) {
			return
		}
		r := b.named(slot)
		if !newcomer[r] || newcomer[slot.at] || !b.mayJoin(slot, r) {
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
		if r == nobody {
			return
		}
		b.move(s, r, Joined)
	}
}

// nextForNewcomer picks the newcomer that has least, and a slot of the busiest replica that has a fitting one. spent are the
// pairs of a newcomer and a replica that has none for it. It never has one later, because all moves go to newcomers: the one
// only gets busier, the other only less busy.
func (b *board) nextForNewcomer(newcomer []bool, spent map[[2]int]bool) (receiver, number int) {
	donors := b.byLoad(true)
	for _, r := range b.byLoad(false) {
		if !newcomer[r] || b.load(r) >= (2-b.config.EvenBelow)*b.mean || float64(b.replicas[r].slots+1) > joinAtMost*b.fairSlots(r) {
			continue
		}
		// The slot that is nearest to what each of the missing ones weighs, so that both shares are reached together.
		missing := max(1, b.fairSlots(r)-float64(b.replicas[r].slots))
		ideal := (b.mean - b.load(r)) * b.replicas[r].Capacity / missing
		for _, donor := range donors {
			if newcomer[donor] || spent[[2]int{r, donor}] {
				continue
			}
			best, distance := nobody, 0.0
			for _, s := range b.replicas[donor].held {
				slot := &b.slots[s]
				if !b.mayJoin(slot, r) || b.with(slot, r) > b.config.EvenBelow*b.mean {
					continue
				}
				if d := math.Abs(float64(slot.cost) - ideal); best == nobody || d < distance {
					best, distance = s, d
				}
			}
			if best != nobody {
				return r, best
			}
			spent[[2]int{r, donor}] = true
		}
	}
	return nobody, nobody
}

// evenOut lets each replica that carries too much give away until it does not. While a replica is awaited, only the slots
// that wait for it move: the others are where they belong when it is back.
func (b *board) evenOut() {
	stuck := make([]bool, len(b.replicas))
	for budget := b.loadBudget(); budget > 0; {
		donor := nobody
		for _, r := range b.byLoad(true) {
			if !stuck[r] && b.load(r) > b.config.UnevenAbove*b.mean {
				donor = r
				break
			}
		}
		if donor == nobody {
			return
		}
		for ; budget > 0 && b.load(donor) > b.config.EvenBelow*b.mean; budget-- {
			s, r := b.nextToGive(donor)
			if s == nobody {
				stuck[donor] = true
				break
			}
			b.move(s, r, Load)
		}
	}
}

// nextToGive picks the slot whose going leaves the busier of donor and receiver least busy.
func (b *board) nextToGive(donor int) (number, receiver int) {
	number = nobody
	least := 0.0
	for _, s := range b.replicas[donor].held {
		slot := &b.slots[s]
		if !b.mayGive(slot) {
			continue
		}
		r := b.leastBusy(slot)
		if r == nobody || !b.improves(slot, r) {
			continue
		}
		if busier := max(b.without(slot), b.with(slot, r)); number == nobody || busier < least {
			number, least = s, busier
		}
	}
	if number == nobody {
		return nobody, nobody
	}
	return number, b.receiver(&b.slots[number])
}
