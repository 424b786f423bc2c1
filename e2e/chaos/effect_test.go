//go:build e2e

package chaos

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/chaos/check"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// suspensions is the metric that counts how often the fence of a process has passed.
const suspensions = "mcf_suspensions_total"

// standing is the state of a replica before a fault.
type standing struct {
	replica, session string
	suspensions      float64
	slots            map[string]int64 // the epochs of the slots that the session holds, by slot Lease
	renewed          time.Time        // when the session has renewed its Lease for the last time, once it is pinned
}

// standing selects a working replica at random.
func (b *bed) standing(t *testing.T) standing {
	t.Helper()
	replica, session := b.worker(t)
	return standing{replica: replica, session: session, suspensions: b.suspensions(t, replica), slots: b.slotsOf(t, session)}
}

func (b *bed) suspensions(t *testing.T, replica string) float64 {
	t.Helper()
	n, err := b.lab.Metric(b.ctx, replica, suspensions)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// slotsOf returns the epochs of the slots that a session holds, by slot Lease.
func (b *bed) slotsOf(t *testing.T, session string) map[string]int64 {
	t.Helper()
	leases, err := b.lab.SlotLeases(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	epochs := map[string]int64{}
	for _, lease := range leases {
		if member.Holder(&lease) == session {
			epochs[lease.Name] = member.Transitions(&lease)
		}
	}
	return epochs
}

// pin records what a session has that can send nothing any more: no other session gets these slots
// before a take-over.
func (b *bed) pin(t *testing.T, s *standing) {
	t.Helper()
	b.wait(t, 200*time.Millisecond) // requests that were sent before have arrived then
	s.slots = b.slotsOf(t, s.session)
	lease, err := b.sessionLease(b.ctx, s.replica)
	if err != nil || lease.Spec.RenewTime == nil {
		t.Fatalf("the session Lease of %s is %+v (%v), want one that was renewed", s.session, lease, err)
	}
	s.renewed = lease.Spec.RenewTime.Time
}

// goesOn: the fault was over before the fence, or did not concern Leases. The session is the same.
// Only on a busy machine, where its renewals are late, the fence may have passed.
func (b *bed) goesOn(t *testing.T, s standing) {
	t.Helper()
	if now := b.atWork(t, s.replica); now != s.session {
		t.Errorf("session %s has ended, and %s is at work", s.session, now)
	} else if n := b.suspensions(t, s.replica); n != s.suspensions {
		t.Logf("%s was suspended %v times, and %v times before: its renewals were late", s.session, n, s.suspensions)
	}
}

// suspends waits until the process reports that it may start nothing.
func (b *bed) suspends(t *testing.T, s standing) {
	t.Helper()
	start := time.Now()
	if err := harness.Eventually(b.ctx, s.replica+" is suspended", func(ctx context.Context) error {
		view, err := b.lab.Slots(ctx, s.replica)
		if err == nil && !view.Suspended {
			err = fmt.Errorf("session %s may act", view.Session)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s was suspended after %.1f s", s.session, time.Since(start).Seconds())
}

// stands: no slot of a session was taken over that was silent for less than a take-over. On a busy
// machine this process may look too late to say so.
func (b *bed) stands(t *testing.T, s standing) {
	t.Helper()
	holder, err := b.session(b.ctx, s.replica)
	now := b.slotsOf(t, s.session)
	if silent := time.Since(s.renewed); silent >= member.DefaultConfig().TakeOver {
		t.Logf("%s was silent for %s when the test looked: a take-over was due", s.session, silent)
		return
	}
	if err != nil || holder != s.session {
		t.Errorf("the session Lease of %s is held by %q before a take-over is due (%v), want %s", s.replica, holder, err, s.session)
	}
	for lease, epoch := range s.slots {
		if now[lease] != epoch {
			t.Errorf("%s was taken from %s, which held it under epoch %d, before a take-over is due", lease, s.session, epoch)
		}
	}
}

// resumes: the fence has passed and no slot was taken over, so that the session continues. Its
// process may have ended because of what was in flight; then the next one continues.
func (b *bed) resumes(t *testing.T, s standing) {
	t.Helper()
	now := b.atWork(t, s.replica)
	switch n := b.suspensions(t, s.replica); {
	case now != s.session:
		t.Logf("the process of %s has ended, and %s is at work", s.session, now)
	case n <= s.suspensions:
		t.Errorf("%s was suspended %v times, as before: its fence should have passed", s.session, n)
	}
}

// loses waits until the session was declared dead, and others hold all its slots under later
// epochs.
func (b *bed) loses(t *testing.T, s standing) {
	t.Helper()
	start := time.Now()
	if err := harness.EventuallyEvery(b.ctx, 250*time.Millisecond, "others have what "+s.session+" had", func(ctx context.Context) error {
		now, err := b.session(ctx, s.replica)
		if err == nil && now != "" {
			err = fmt.Errorf("its session Lease is held by %s", now)
		}
		leases, err2 := b.lab.SlotLeases(ctx)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		for _, lease := range leases {
			epoch, had := s.slots[lease.Name]
			holder := member.Holder(&lease)
			if holder == s.session || had && (holder == "" || member.Transitions(&lease) <= epoch) {
				return fmt.Errorf("%s is held by %q under epoch %d; %s had it under %d",
					lease.Name, holder, member.Transitions(&lease), s.session, epoch)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(s.slots) == 0 {
		t.Errorf("%s held no slot that could be taken over", s.session)
	}
	t.Logf("%d slots of %s were taken over %.1f s later", len(s.slots), s.session, time.Since(start).Seconds())
}

// startsAnew waits until another session of the replica is at work: one that was declared dead
// never is again.
func (b *bed) startsAnew(t *testing.T, s standing) {
	t.Helper()
	if now := b.atWork(t, s.replica); now == s.session {
		t.Errorf("session %s was declared dead, and is at work", s.session)
	}
}

// pause stops the process of a replica for a while.
func pause(t *testing.T, b *bed, d time.Duration) {
	s := b.standing(t)
	b.do(t, s.replica, harness.Pause)
	paused := time.Now()
	b.pin(t, &s)
	config := member.DefaultConfig()
	if d > config.TakeOver {
		b.loses(t, s)
	}
	b.wait(t, time.Until(paused.Add(d)))
	if d < config.TakeOver {
		b.stands(t, s)
	}
	b.do(t, s.replica, harness.Resume)
	switch {
	case d < config.Fence:
		b.goesOn(t, s)
	case d < config.TakeOver:
		b.resumes(t, s)
	default:
		b.startsAnew(t, s)
	}
}

// cutOff disconnects a replica from its Leases until its fence has passed, and, for a long fault,
// until others have its slots.
func cutOff(t *testing.T, b *bed, cut harness.Fault, long bool) {
	s := b.standing(t)
	b.link(t, s.replica, harness.LinkControl, cut)
	b.pin(t, &s)
	b.suspends(t, s)
	if long {
		b.loses(t, s)
	} else if cut.Only != harness.Answers { // else requests from before its fence take effect
		b.stands(t, s)
	}
	b.heal(t, s.replica)
	if long {
		b.startsAnew(t, s)
	} else {
		b.resumes(t, s)
	}
}

// cutFrom disconnects a replica from the cloud, or the target cluster, for a while. It keeps its
// session and may act all the time: such a fault does not cause it to release its slots.
func cutFrom(t *testing.T, b *bed, link string, cut harness.Fault, d time.Duration) {
	s := b.standing(t)
	b.link(t, s.replica, link, cut)
	from := time.Now()
	b.wait(t, d)
	to := time.Now()
	b.heal(t, s.replica)
	b.goesOn(t, s)
	there := b.requests(t, s.session, link)
	switch between := count(there, from.Add(time.Second), to); {
	case cut.Only == harness.Answers && count(there, from, to) == 0:
		t.Errorf("no request of %s has reached the %s while only answers were cut", s.session, link)
	case cut.Only != harness.Answers && between > 0:
		t.Errorf("%d requests of %s have reached the %s while it was cut off", between, s.session, link)
	}
	if err := harness.EventuallyEvery(b.ctx, time.Second, s.session+" reaches the "+link+" again", func(context.Context) error {
		if count(b.requests(t, s.session, link), to, time.Now()) == 0 {
			return errors.New("it does not")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// requests are the moments at which requests of a session arrived at the far end of a link.
func (b *bed) requests(t *testing.T, session, link string) (at []time.Time) {
	t.Helper()
	by := func(caller string) bool {
		actor, known := check.ParseActor(caller)
		return known && actor.Session == session
	}
	if link == harness.LinkCloud {
		calls, err := b.lab.Cloud.Calls()
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range calls {
			if by(call.Caller) {
				at = append(at, call.Start)
			}
		}
		return at
	}
	requests, err := b.lab.Requests(b.recorder.Position)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range requests {
		if r.Resource == "nodes" && r.Verb != "watch" && by(r.UserAgent) {
			at = append(at, r.At)
		}
	}
	return at
}

func count(at []time.Time, from, to time.Time) (n int) {
	for _, moment := range at {
		if moment.After(from) && moment.Before(to) {
			n++
		}
	}
	return n
}

// link sets the fault of one link of a replica.
func (b *bed) link(t *testing.T, replica, link string, f harness.Fault) {
	t.Helper()
	if err := b.lab.SetFault(b.ctx, replica, link, f); err != nil {
		t.Fatal(err)
	}
}

// heal ends all faults of a replica's links.
func (b *bed) heal(t *testing.T, replica string) {
	t.Helper()
	if err := b.lab.Heal(b.ctx, replica); err != nil {
		t.Fatal(err)
	}
}
