package session

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// leading returns a Replica that leads.
func leading(t *testing.T) *Replica {
	t.Helper()
	r, _ := stepped(t, clock.RealClock{}, instantGrants{}, nil)
	r.cfg.Fence.Follow(entitled{until: r.cfg.Time.Moment().Add(time.Hour)}, nil)
	lead(r)
	return r
}

func lead(r *Replica) {
	r.cfg.Fence.BeginLeading()
	r.cfg.Fence.MoveLeaderFence(r.cfg.Time.Moment().Add(time.Hour))
}

func TestTroublesOf(t *testing.T) {
	works := member.Fitness{Acts: true, Observes: true}
	unreached := protocol.SessionFacts{Replica: "fleet-0", Session: "s", Fitness: works, Unreached: []string{"n/a", "n/b"}}
	both := unreached
	both.Fitness = member.Fitness{Acts: true, Reason: "blind"}
	ended := both
	ended.Session = ""
	account := func(class string) string {
		return "fleet-0 AccountUnreached: Replica fleet-0 gets no answer from the cloud or the driver of MachineClass " + class +
			", and other replicas do; " +
			"the slots of its machines are assigned to these; check the processes of drivers in its pod, and its connections to the cloud"
	}
	for name, test := range map[string]struct {
		of   protocol.SessionFacts
		want map[string]string // by key
	}{
		"fit":      {protocol.SessionFacts{Session: "s", Fitness: works}, map[string]string{}},
		"accounts": {unreached, map[string]string{"s AccountUnreached n/a": account("n/a"), "s AccountUnreached n/b": account("n/b")}},
		"accounts, and unfit": {both, map[string]string{
			"s AccountUnreached n/a": account("n/a"), "s AccountUnreached n/b": account("n/b"),
			"s ReplicaUnfit ": "fleet-0 ReplicaUnfit: Replica fleet-0 renews its Lease and cannot do its work: blind; " +
				"its slots are assigned to replicas that can; check its log and its connections to both clusters",
		}},
		"no session lives": {ended, map[string]string{}},
	} {
		got := map[string]string{}
		for key, t := range troublesOf([]protocol.SessionFacts{test.of}) {
			got[key] = t.Replica + " " + t.Event + ": " + t.Message
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// The report is written once, without waiting for its end, and once more after an error.
func TestUnfitIsReportedByTheLeader(t *testing.T) {
	r, start, failure, reported := leading(t), member.Moment{}, errors.New("not now"), []string{}
	r.cfg.Unfit = func(_ context.Context, troubles []Trouble) error {
		for _, t := range troubles {
			reported = append(reported, t.Replica)
		}
		if r.cfg.Fence.Leadership().InFlight != 1 {
			t.Error("the report is not counted as in flight")
		}
		return failure
	}
	unfit := []protocol.SessionFacts{{Session: "s", Replica: "s"}}
	report := func(after time.Duration, sessions []protocol.SessionFacts, want ...string) {
		t.Helper()
		reported = nil
		r.report(t.Context(), start.Add(after), &protocol.Facts{Sessions: sessions})
		r.sent.Wait()
		for _, l := range r.mail.receive() {
			l.do()
		}
		if diff := cmp.Diff(want, reported); diff != "" {
			t.Errorf("after %v (-want +got):\n%s", after, diff)
		}
		if n := r.cfg.Fence.Leadership().InFlight; n != 0 {
			t.Errorf("after %v: %d in flight under the leadership", after, n)
		}
	}
	report(0, unfit)
	report(longUnfit, unfit)
	report(longUnfit+time.Second, unfit, "s")
	failure = nil
	report(longUnfit+2*time.Second, unfit, "s")
	report(longUnfit+3*time.Second, unfit)
	r.cfg.Fence.EndLeading()
	report(longUnfit+4*time.Second, unfit)
	lead(r) // it leads once more, and the session is reported once more
	report(longUnfit+5*time.Second, unfit)
	report(2*longUnfit+6*time.Second, unfit, "s")
}

func TestUnfitAndUnownedAreBothReported(t *testing.T) {
	r, facts := leading(t), &protocol.Facts{Sessions: []protocol.SessionFacts{{Session: "s"}}, Slots: []protocol.SlotFacts{{Slot: 3}}}
	unfit, unowned := make(chan int, 1), make(chan int, 1)
	r.cfg.Unfit = func(_ context.Context, of []Trouble) error { unfit <- len(of); return nil }
	r.cfg.Unowned = func(_ context.Context, slots []int) error { unowned <- len(slots); return nil }
	r.report(t.Context(), member.Moment{}, facts)
	r.report(t.Context(), member.Moment{}.Add(time.Minute), facts)
	r.sent.Wait()
	if len(unfit) != 1 || len(unowned) != 1 {
		t.Errorf("%d reports of unfit sessions, and %d of unowned slots, want one of each", len(unfit), len(unowned))
	}
}

// unlistedGrants miss the objects of slots.
type unlistedGrants struct {
	instantGrants

	unlisted map[int]string
}

func (g unlistedGrants) Unlisted() map[int]string { return g.unlisted }

func TestUnfitSlotsThatWait(t *testing.T) {
	r, _ := stepped(t, clock.RealClock{},
		unlistedGrants{unlisted: map[int]string{3: "Nodes", 4: "", 5: "Nodes", 6: "Nodes", 7: "Machines"}}, nil)
	r.opening = map[int]*opening{2: {}, 3: {}, 4: {}, 5: {}, 6: {ready: true}}
	if diff := cmp.Diff(map[int]string{2: pending, 3: "Nodes", 4: pending, 5: "Nodes"}, r.waiting()); diff != "" {
		t.Errorf("waiting (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{pending: 2, "Nodes": 2}, r.unopened()); diff != "" {
		t.Errorf("unopened (-want +got):\n%s", diff)
	}
}

func TestChangesOfFailingAccountsAreReported(t *testing.T) {
	r, _ := stepped(t, clock.RealClock{}, instantGrants{}, nil)
	r.compareAccounts() // without a function that returns them
	failing := member.Accounts{Failing: []member.Account{{Key: "a/1"}}}
	var is member.Accounts
	r.cfg.Accounts = func() member.Accounts { return is }
	for i, step := range []struct {
		is   member.Accounts
		want []letter
	}{
		{member.Accounts{}, nil},
		{failing, []letter{{event: protocol.Compared{Accounts: failing}}}},
		{failing, nil},
		{member.Accounts{}, []letter{{event: protocol.Compared{}}}},
	} {
		is = step.is
		r.compareAccounts()
		if diff := cmp.Diff(step.want, r.mail.receive(), cmp.AllowUnexported(letter{})); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
}
