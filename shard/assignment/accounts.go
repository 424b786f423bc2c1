package assignment

// Account is an account at a cloud, or a whole driver, that some replicas reach and others do not.
type Account struct {
	// Slots are the numbers of the slots whose machines need it, in their order.
	Slots []int
	// Failing are the replicas that it does not answer, Reached those that it has just answered. Other
	// replicas have not tried.
	Failing, Reached map[string]bool
}

// mostTaken is the load relative to the mean from which on a replica takes no slots because others
// do not reach an account: one of two replicas can take over all. An account that answers one
// replica only, which its owner can bring about, overloads that one no further.
const mostTaken = 2

// addAccounts records which replicas do not reach the accounts of slots.
func (b *board) addAccounts(accounts []Account) {
	b.accounts = accounts
	for _, account := range accounts {
		for _, s := range account.Slots {
			if s < 0 || s >= len(b.slots) {
				continue
			}
			slot := &b.slots[s]
			if slot.unreached == nil {
				slot.unreached = map[string]bool{}
			}
			for name, fails := range account.Failing {
				slot.unreached[name] = slot.unreached[name] || fails
			}
		}
	}
}

// reaches reports whether a replica reaches all accounts of a slot, as far as is known, or reaches
// no less than the present one: an account that is away for all keeps no slot where it is.
func (b *board) reaches(s *slot, r int) bool {
	return !s.unreached[b.replicas[r].Name] || s.at != none && s.unreached[b.replicas[s.at].Name]
}

// mayTake reports whether slots may move to a replica because of accounts, by its load. How much
// one slot adds to that does not count: a slot with new machines is heavy for some minutes.
func (b *board) mayTake(r int) bool { return b.load(r) < mostTaken*b.mean }

// leaveUnreached assigns slots whose replica does not reach an account of theirs to replicas that
// have just reached it, those of one account at a time: the next one's when these have been
// acquired. Each move leaves one slot less that its replica cannot serve wholly, so that the moves
// end.
func (b *board) leaveUnreached() {
	for s := range b.slots {
		if slot := &b.slots[s]; slot.MovedForAccount != 0 && b.now-slot.MovedForAccount < b.config.Window && slot.Holder != slot.Assigned {
			return
		}
	}
	for _, account := range b.accounts {
		moved := false
		for _, s := range account.Slots {
			if r := b.reachedFor(&account, s); r != none {
				b.move(s, r, Unreached)
				moved = true
			}
		}
		if moved {
			return
		}
	}
}

// reachedFor returns the replica to which a slot moves because its own one does not reach the
// account; none if it stays.
func (b *board) reachedFor(account *Account, s int) int {
	if s < 0 || s >= len(b.slots) {
		return none
	}
	slot := &b.slots[s]
	if slot.why != "" || slot.at == none || !account.Failing[b.replicas[slot.at].Name] || slot.StaysUntil > b.now {
		return none
	}
	return b.leastBusy(slot, func(r int) bool {
		return account.Reached[b.replicas[r].Name] && !slot.unreached[b.replicas[r].Name] && b.isChoice(slot, r) && b.mayTake(r)
	})
}
