package protocol

import (
	"cmp"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// table records what the Leases show of slots and sessions, as far as this session has observed
// them.
type table struct {
	*shared

	// sessions are the contents of the session Leases, by replica; confirmations are the slot Leases
	// that sessions have confirmed.
	sessions      map[string]*sessionContent
	confirmations map[string]map[types.UID]struct{}
	// reports are those of the replicas about their slots and machines, by replica.
	reports map[string]report
	// reportedAccounts is the report of this session about accounts at clouds.
	reportedAccounts member.Accounts
}

// report is a version of a Lease with a replica's report; the zero report is none.
type report struct {
	lease           *coordinationv1.Lease
	weights, counts string
	weightOf        map[int]int64
}

// sessionContent is the content of a session Lease, parsed once for each of its versions.
type sessionContent struct {
	session, confirmed, weights, reported string
	// accounts is the report about accounts at clouds. uids are the slot Leases that the session has
	// confirmed, weightOf the weights of slots that a session of an earlier version reports there.
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
		w := t.sessions[replica]
		if w == nil {
			w = &sessionContent{}
			t.sessions[replica] = w
		}
		if w.weights != peer.Weights {
			w.weights, w.weightOf = peer.Weights, readWeights(peer.Weights, len(t.slots))
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

// observeReport records a version of the Lease with a replica's report; nil if there is none. A
// leader assigns slots again then.
func (t *table) observeReport(replica string, l *coordinationv1.Lease) {
	t.dirty = true
	if l == nil {
		delete(t.reports, replica)
		return
	}
	before := t.reports[replica]
	now := report{
		lease: l, weights: l.Annotations[v1alpha1.AnnotationWeights], counts: l.Annotations[v1alpha1.AnnotationCounts], weightOf: before.weightOf,
	}
	if now.weights != before.weights {
		now.weightOf = readWeights(now.weights, len(t.slots))
	}
	t.reports[replica] = now
}

// reportOf returns what a replica has last reported about its slots and machines.
func (t *table) reportOf(replica string) report { return t.reports[replica] }

// countsOf returns the last report of a replica about its machines. Sessions of earlier versions
// write it to their session Lease, where it stays until a later one has written its own.
func (t *table) countsOf(peer member.Peer) string {
	return cmp.Or(peer.Counts, t.reports[peer.Replica].counts)
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

// reported returns the weight that the slot's holder reports. Sessions of earlier versions report
// it on their session Lease. A report of another session of the replica is not the holder's.
func (t *table) reported(s *slot) (weight int64, known bool) {
	if w := t.sessions[s.replica]; w != nil {
		weight, known = w.weightOf[s.number]
	}
	if r := t.reports[s.replica]; !known && member.Holder(r.lease) == s.holder {
		weight, known = r.weightOf[s.number]
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

// readWeights parses the weights that a session reports, of so many slots. Entries that cannot be
// parsed are left out.
func readWeights(text string, slots int) map[int]int64 {
	weights := map[int]int64{}
	for entry := range strings.SplitSeq(text, ",") {
		number, value, _ := strings.Cut(entry, ":")
		slot, err := strconv.Atoi(number)
		weight, err2 := strconv.ParseInt(value, 10, 64)
		if err == nil && err2 == nil && slot >= 0 && slot < slots {
			weights[slot] = weight
		}
	}
	return weights
}
