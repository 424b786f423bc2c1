package protocol

import (
	"slices"
	"time"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
)

// accountMoves is the leader's record of the moves of a slot because of accounts.
type accountMoves struct {
	times         int
	last, blocked member.Moment
}

// record records one more move. Before blocked has passed the slot does not move again for that
// reason: PassOverFor after the first move, HomeFor after the second, then twice as long each time.
// What an account answers is up to its owner, and the slot may have machines of others.
func (m *accountMoves) record(s Settings, now member.Moment) {
	if !m.last.IsZero() && now.Reached(m.blocked.Add(backOff(s.Assignment.HomeFor, mostBackOff+1))) {
		m.times = 0
	}
	wait := s.Assignment.PassOverFor
	if m.times > 0 {
		wait = backOff(s.Assignment.HomeFor, m.times)
	}
	m.times++
	m.last, m.blocked = now, now.Add(wait)
}

// accountsOf returns what a replica reports about accounts. What we report ourselves may not be
// visible in the watch yet.
func (t *table) accountsOf(peer member.Peer) member.Accounts {
	if peer.Session == t.settings.Session {
		return t.reportedAccounts
	}
	if w := t.sessions[peer.Replica]; w != nil && peer.Session != "" {
		return w.accounts
	}
	return member.Accounts{}
}

// compareAccounts returns the accounts that do not answer a replica, by their keys, with what all
// replicas report of them.
func (t *table) compareAccounts(peers []member.Peer) map[string]*assignment.Account {
	all, slots := map[string]*assignment.Account{}, map[string]member.SlotSet{}
	for _, peer := range peers {
		for _, failing := range t.accountsOf(peer).Failing {
			if all[failing.Key] == nil {
				all[failing.Key] = &assignment.Account{Failing: map[string]bool{}, Reached: map[string]bool{}}
			}
			all[failing.Key].Failing[peer.Replica] = true
			slots[failing.Key] = joined(slots[failing.Key], failing.Slots)
		}
	}
	for _, peer := range peers {
		for _, asked := range t.accountsOf(peer).Asked {
			account := all[asked.Key]
			if account == nil {
				continue
			}
			if asked.Reached {
				account.Reached[peer.Replica] = true
			}
			slots[asked.Key] = joined(slots[asked.Key], asked.Slots)
		}
	}
	for key, account := range all {
		account.Slots = t.numbers(slots[key])
	}
	return all
}

// numbers returns the numbers of a set of slots.
func (t *table) numbers(set member.SlotSet) (numbers []int) {
	for number := range t.slots {
		if set.Has(number) {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

// joined returns the slots of two sets.
func joined(one, other member.SlotSet) member.SlotSet {
	if len(one) < len(other) {
		one, other = other, one
	}
	all := slices.Clone(one)
	for i, bits := range other {
		all[i] |= bits
	}
	return all
}

// needsFor is for how long a slot counts as needing an account after that was last reported: its
// holder reports it, and during a hand-over there is none.
const needsFor = time.Minute

// unreached returns, by replica, the classes of the accounts that do not answer it and answer
// another one.
func (t *table) unreached(peers []member.Peer) map[string][]string {
	all, of := t.compareAccounts(peers), map[string][]string{}
	for _, peer := range peers {
		for _, failing := range t.accountsOf(peer).Failing {
			if len(all[failing.Key].Reached) > 0 {
				of[peer.Replica] = append(of[peer.Replica], failing.Class)
			}
		}
	}
	return of
}
