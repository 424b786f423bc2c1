package protocol

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// table records what the Leases show of slots and sessions, as far as this session has observed
// them.
type table struct {
	*shared

	// reports are the contents of the session Leases, by replica; confirmations are the slot Leases
	// that sessions have confirmed.
	reports       map[string]*sessionReport
	confirmations map[string]map[types.UID]struct{}
	// reportedAccounts is the report of this session about accounts at clouds.
	reportedAccounts member.Accounts
}

// sessionReport is the content of a session Lease, parsed once for each of its versions.
type sessionReport struct {
	session, confirmed, weights, reported string
	// accounts is the report about accounts at clouds. uids are the slot Leases that the session has
	// confirmed, weightOf the weights of slots that the replica reports.
	accounts member.Accounts
	uids     map[types.UID]struct{}
	weightOf map[int]int64
}

// applyNews applies what has changed on session Leases.
func (t *table) applyNews() {
	replicas, lives := t.others.News()
	if lives {
		t.touchAll()
	}
	for _, replica := range replicas {
		peer := t.others.Peer(replica)
		w := t.reports[replica]
		if w == nil {
			w = &sessionReport{}
			t.reports[replica] = w
		}
		if w.weights != peer.Weights {
			w.weights, w.weightOf = peer.Weights, readWeights(peer.Weights)
		}
		if w.reported != peer.Accounts {
			w.reported = peer.Accounts
			w.accounts, _ = member.ParseAccounts(peer.Accounts) // an invalid report reports nothing
		}
		if w.session != peer.Session || w.confirmed != peer.Confirmed {
			delete(t.confirmations, w.session)
			before := w.uids
			w.session, w.confirmed, w.uids = peer.Session, peer.Confirmed, readConfirmed(peer.Confirmed)
			t.confirmations[w.session] = w.uids
			t.touchConfirmed(before, w.uids)
		}
	}
}

// touchConfirmed touches the slots in quarantine that a session has confirmed either before or
// after, but not both.
func (t *table) touchConfirmed(before, after map[types.UID]struct{}) {
	for _, s := range t.slots {
		if len(s.quarantine) == 0 {
			continue
		}
		_, was := before[s.lease.UID]
		if _, is := after[s.lease.UID]; is != was {
			t.touch(s)
		}
	}
}

// confirmed reports whether a session has confirmed on its Lease that it has nothing of the slot in
// flight. Once true this stays true, because the Lease that it may have held is gone: so what the
// watch shows is sufficient.
func (t *table) confirmed(s *slot, session string) bool {
	_, confirmed := t.confirmations[session][s.lease.UID]
	return confirmed
}

// readConfirmed parses the UIDs of the slot Leases that a session has confirmed.
func readConfirmed(text string) map[types.UID]struct{} {
	if text == "" {
		return nil
	}
	uids := make(map[types.UID]struct{}, strings.Count(text, ",")+1)
	for uid := range strings.SplitSeq(text, ",") {
		uids[types.UID(uid)] = struct{}{}
	}
	return uids
}

// owner returns the replica whose session holds the slot and, as far as this session has observed,
// lives; "" if there is none.
func (t *table) owner(s *slot) string {
	if !s.genuine || t.others.Peer(s.replica).Session != s.holder {
		return ""
	}
	return s.replica
}

// reported returns the weight that the slot's holder reports.
func (t *table) reported(s *slot) (weight int64, known bool) {
	if w := t.reports[s.replica]; w != nil {
		weight, known = w.weightOf[s.number]
	}
	return weight, known
}

// remember keeps the weight that the slot's holder reports, for the time until its next holder
// reports one.
func (t *table) remember(s *slot) {
	if weight, known := t.reported(s); known {
		s.reported, s.wasReported = weight, true
	}
}

// weighs returns the weight of a slot: the one that its holder reports, dead or alive; otherwise
// the last one reported; otherwise the one recorded on its Lease.
func (t *table) weighs(s *slot) int64 {
	weight, known := t.reported(s)
	switch {
	case known:
		return weight
	case s.wasReported:
		return s.reported
	}
	return s.weight
}

// readWeights parses the weights that a session reports. Entries that cannot be parsed are left
// out.
func readWeights(text string) map[int]int64 {
	weights := map[int]int64{}
	for entry := range strings.SplitSeq(text, ",") {
		number, value, _ := strings.Cut(entry, ":")
		slot, err := strconv.Atoi(number)
		weight, err2 := strconv.ParseInt(value, 10, 64)
		if err == nil && err2 == nil {
			weights[slot] = weight
		}
	}
	return weights
}
