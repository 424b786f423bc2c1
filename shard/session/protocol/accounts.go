package protocol

import (
	"maps"
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

// record records one more move. Before blocked has passed the slot does not move again for that reason: PassOverFor after the first move,
// HomeFor after the second, then twice as long each time. What an account answers is up to its owner, and the slot may have machines of others.
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

// handleAccounts records what this session reports about accounts, with its next renewal.
func (r *Session) handleAccounts(e Compared) {
	r.reportedAccounts, r.notes.Accounts, r.dirty = e.Accounts, e.Accounts.String(), true
}

// accountsOf returns what a replica reports about accounts. What we report ourselves may not be visible in the watch yet.
func (r *Session) accountsOf(peer member.Peer) member.Accounts {
	if peer.Session == r.settings.Session {
		return r.reportedAccounts
	}
	if w := r.words[peer.Replica]; w != nil && peer.Session != "" {
		return w.accounts
	}
	return member.Accounts{}
}

// compareAccounts returns the accounts that do not answer a replica, by their keys, with what all replicas report of them.
func (r *Session) compareAccounts(peers []member.Peer) map[string]*assignment.Account {
	all, slots := map[string]*assignment.Account{}, map[string]member.SlotSet{}
	for _, peer := range peers {
		for _, failing := range r.accountsOf(peer).Failing {
			if all[failing.Key] == nil {
				all[failing.Key] = &assignment.Account{Failing: map[string]bool{}, Reached: map[string]bool{}}
			}
			all[failing.Key].Failing[peer.Replica] = true
			slots[failing.Key] = joined(slots[failing.Key], failing.Slots)
		}
	}
	for _, peer := range peers {
		for _, asked := range r.accountsOf(peer).Asked {
			if account := all[asked.Key]; account != nil {
				if asked.Reached {
					account.Reached[peer.Replica] = true
				}
				slots[asked.Key] = joined(slots[asked.Key], asked.Slots)
			}
		}
	}
	for key, account := range all {
		for number := range r.slots {
			if slots[key].Has(number) {
				account.Slots = append(account.Slots, number)
			}
		}
	}
	return all
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

// needsFor is for how long a slot counts as needing an account after that was last reported: its holder reports it, and during a hand-over
// there is none.
const needsFor = time.Minute

// worldAccounts returns the input of the assignment about accounts, in the order of their keys.
func (r *Session) worldAccounts(now member.Moment, peers []member.Peer) (accounts []assignment.Account) {
	all := r.compareAccounts(peers)
	maps.DeleteFunc(r.needs, func(key string, _ map[int]member.Moment) bool { return all[key] == nil })
	for _, key := range slices.Sorted(maps.Keys(all)) {
		needs := r.needs[key]
		if needs == nil {
			needs = map[int]member.Moment{}
			r.needs[key] = needs
		}
		for _, slot := range all[key].Slots {
			needs[slot] = now
		}
		maps.DeleteFunc(needs, func(_ int, at member.Moment) bool { return now.Since(at) >= needsFor })
		all[key].Slots = slices.Sorted(maps.Keys(needs))
		accounts = append(accounts, *all[key])
	}
	return accounts
}

// Unreached returns the classes of the accounts that do not answer this session and answer another one.
func (r *Session) Unreached() []string { return r.unreached(r.others.Peers())[r.settings.Replica] }

// unreached returns, by replica, the classes of the accounts that do not answer it and answer another one.
func (r *Session) unreached(peers []member.Peer) map[string][]string {
	all, of := r.compareAccounts(peers), map[string][]string{}
	for _, peer := range peers {
		for _, failing := range r.accountsOf(peer).Failing {
			if len(all[failing.Key].Reached) > 0 {
				of[peer.Replica] = append(of[peer.Replica], failing.Class)
			}
		}
	}
	return of
}
