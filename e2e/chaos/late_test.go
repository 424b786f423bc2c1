//go:build e2e

package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/chaos/check"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// trace finds requests of a session in the logs: an actor for each one that arrived between two
// moments. what is the name of the request that was stopped.
type trace func(b *bed, what string, from, to time.Time) ([]check.Actor, error)

// lateTries is how often a request is stopped until one is sent late: the resumed process may
// notice first how late it is, and end.
const lateTries = 3

// late stops a request between its check and its send, pauses the whole process until others have
// its slots, and resumes the request then. find shows that it arrives, from a session that has lost
// the slot. With one CPU the process notices first nearly always how late it is, and ends without
// the request: in the short form that passes, too. Late requests in virtual time are in
// shard/verification/simulation.
func late(t *testing.T, b *bed, match string, find trace) {
	var err error
	for range lateTries {
		if err = tryLate(t, b, match, find); err == nil {
			return
		}
		t.Log(err)
	}
	if !testing.Short() {
		t.Fatal(err)
	}
}

func tryLate(t *testing.T, b *bed, match string, find trace) error {
	t.Helper()
	point, err := b.lab.StopNext(b.ctx, match)
	if err != nil {
		t.Fatal(err)
	}
	at, err := point.Wait(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	name, session := at.Replica, at.Session
	t.Logf("%s has stopped before %s", session, at.What)
	b.do(t, name, harness.Pause)
	holders := b.waitTakenOver(t, session)
	// Released while the process cannot answer, so that it is sent before the process notices how late
	// it is.
	from := time.Now()
	released := make(chan error, 1)
	go func() { released <- b.lab.Release(b.ctx, name) }()
	b.wait(t, 100*time.Millisecond)
	b.do(t, name, harness.Resume)
	if err := <-released; err != nil {
		t.Logf("the process ended before it answered: %v", err)
	}
	return b.seen(t, session, holders, func() ([]check.Actor, error) { return find(b, at.What, from, time.Now()) })
}

// lateWrite finds a request in the audit log, by when it was answered.
func lateWrite(b *bed, what string, from, to time.Time) (actors []check.Actor, err error) {
	what, _, _ = strings.Cut(what, " under ")
	requests, err := b.lab.Requests(b.recorder.Position)
	for _, r := range requests {
		uri, unreadable := url.Parse(r.URI)
		if unreadable != nil || !r.IsWrite() || !strings.HasSuffix(what, " "+uri.Path) || r.At.Before(from) || r.At.After(to) {
			continue
		}
		if actor, known := check.ParseActor(r.UserAgent); known {
			actors = append(actors, actor)
		}
	}
	return actors, err
}

// lateCreate finds a create in the cloud's log, by when it had its effect.
func lateCreate(b *bed, _ string, from, to time.Time) (actors []check.Actor, err error) {
	calls, err := b.lab.Cloud.Calls()
	for _, call := range calls {
		if call.Operation != cloudapi.OpCreateInstance || call.Start.Before(from) || call.Start.After(to) {
			continue
		}
		if actor, known := check.ParseActor(call.Caller); known {
			actors = append(actors, actor)
		}
	}
	return actors, err
}

// longCall is the time of a create, longer than a take-over, also from the leader, and shorter than
// the driver's timeout.
const longCall = 28 * time.Second

// pauseInCall pauses a replica while its create is in flight at the cloud. Others have its slots
// before the cloud answers, and the answer arrives while the replica is still paused.
func pauseInCall(t *testing.T, b *bed) {
	if err := b.lab.WaitAtRest(b.ctx); err != nil { // a moving slot takes its machines from the replica that calls
		t.Fatal(err)
	}
	b.cloud(t, fmt.Sprintf(`{"latency":{"CreateInstance":{"mean":%q,"spread":"0s"}}}`, longCall))
	b.wait(t, 2*time.Second) // earlier calls have been answered then
	name, session := b.calling(t)
	paused := time.Now()
	b.do(t, name, harness.Pause)
	b.cloud(t, `{"latency":{"CreateInstance":{"mean":"300ms","spread":"200ms"}}}`) // for all others
	holders := b.waitTakenOver(t, session)
	taken := time.Now()
	b.wait(t, time.Until(paused.Add(longCall+time.Second)))
	b.do(t, name, harness.Resume)
	b.arrived(t, session, holders, func() (actors []check.Actor, err error) {
		calls, err := b.lab.Cloud.Calls()
		for _, call := range calls {
			if call.Operation != cloudapi.OpCreateInstance || !call.Start.Before(paused) || !call.End.After(taken) {
				continue
			}
			if actor, known := check.ParseActor(call.Caller); known {
				actors = append(actors, actor)
			}
		}
		return actors, err
	})
}

// pauseInShortCall pauses a replica, for less than its fence, while the cloud processes its
// creates, and answers. The replica receives the answers when it resumes: its session is the same,
// and its machines have these VMs.
func pauseInShortCall(t *testing.T, b *bed) {
	const call, pause = 3 * time.Second, 5 * time.Second
	if err := b.lab.WaitAtRest(b.ctx); err != nil { // the holder of a slot that moves is not the one that calls
		t.Fatal(err)
	}
	b.cloud(t, fmt.Sprintf(`{"latency":{"CreateInstance":{"mean":%q,"spread":"0s"}}}`, call))
	b.wait(t, 2*time.Second) // earlier calls have been answered then
	name, session := b.calling(t)
	s := standing{replica: name, session: session, suspensions: b.suspensions(t, name)}
	paused := time.Now()
	b.do(t, name, harness.Pause)
	b.wait(t, pause)
	resumed := time.Now()
	b.do(t, name, harness.Resume)
	b.cloud(t, `{"latency":{"CreateInstance":{"mean":"300ms","spread":"200ms"}}}`)
	b.goesOn(t, s)
	calls, err := b.lab.Cloud.Calls()
	if err != nil {
		t.Fatal(err)
	}
	created := map[string]string{}
	for _, call := range calls {
		actor, known := check.ParseActor(call.Caller)
		if known && actor.Session == session && call.Operation == cloudapi.OpCreateInstance && call.Start.Before(paused) &&
			call.End.After(paused) && call.End.Before(resumed) {
			created[call.Token] = call.Instance
		}
	}
	if len(created) == 0 {
		t.Fatalf("no create of %s was answered while it was paused", session)
	}
	t.Logf("%d creates of %s were answered while it was paused", len(created), session)
	b.noted(t, created)
}

// noted waits until machines, by their UIDs, have recorded these VMs, by their IDs. Those that are
// gone, or being deleted, do not count.
func (b *bed) noted(t *testing.T, created map[string]string) {
	t.Helper()
	if err := harness.Eventually(b.ctx, "machines have recorded their VMs", func(ctx context.Context) error {
		machines, err := b.lab.Machines.MachineV1alpha1().Machines(b.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, m := range machines.Items {
			if id := created[string(m.UID)]; id != "" && m.DeletionTimestamp == nil && !strings.HasSuffix(m.Spec.ProviderID, "/"+id) {
				return fmt.Errorf("machine %s has provider ID %q, and %s was created for it", m.Name, m.Spec.ProviderID, id)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// calling waits until a create of a replica is in flight: the VM exists, and its machine has not
// recorded it.
func (b *bed) calling(t *testing.T) (replica, session string) {
	t.Helper()
	if err := harness.Eventually(b.ctx, "a replica waits for the cloud", func(ctx context.Context) error {
		machines, err := b.lab.Machines.MachineV1alpha1().Machines(b.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		slots := map[string]string{}
		for _, m := range machines.Items {
			if m.Spec.ProviderID == "" && m.DeletionTimestamp == nil {
				slots[string(m.UID)] = m.Labels[v1alpha1.LabelSlot]
			}
		}
		vms, err := b.lab.Cloud.VMs(ctx, b.namespace)
		if err != nil {
			return err
		}
		holders, err := b.lab.Holders(ctx)
		if err != nil {
			return err
		}
		for _, vm := range vms {
			var slot int
			if _, err := fmt.Sscan(slots[vm.Tags[simulated.TagMachineUID]], &slot); err != nil {
				continue // its machine has recorded it
			}
			if session = holders[b.slotLease(slot)]; session != "" {
				replica = replicaOf(session)
				return nil
			}
		}
		return fmt.Errorf("of %d VMs none is new", len(vms))
	}); err != nil {
		t.Fatal(err)
	}
	return replica, session
}

// waitTakenOver waits until other sessions hold all slots, and returns which.
func (b *bed) waitTakenOver(t *testing.T, session string) (holders map[string]string) {
	t.Helper()
	start := time.Now()
	if err := harness.Eventually(b.ctx, "others hold the slots of "+session, func(ctx context.Context) (err error) {
		holders, err = b.lab.Holders(ctx)
		remaining := 0
		for _, holder := range holders {
			if holder == session || holder == "" {
				remaining++
			}
		}
		if err == nil && remaining > 0 {
			err = fmt.Errorf("%d slots are left", remaining)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Logf("others hold the slots of %s after %.1f s", session, time.Since(start).Seconds())
	return holders
}

// arrived waits until the logs show a request of the session under a slot that another held
// already.
func (b *bed) arrived(t *testing.T, session string, holders map[string]string, find func() ([]check.Actor, error)) {
	t.Helper()
	if err := b.seen(t, session, holders, find); err != nil {
		t.Fatal(err)
	}
}

// seen is arrived with an error instead of a failure of the test.
func (b *bed) seen(t *testing.T, session string, holders map[string]string, find func() ([]check.Actor, error)) error {
	t.Helper()
	late := false
	err := harness.Eventually(b.ctx, "the late request is in the logs, or its session has ended", func(ctx context.Context) error {
		ended, err1 := b.hasEnded(ctx, session) // asked first: what it sent before is in the logs then
		actors, err2 := find()
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		for _, actor := range actors {
			if holder := holders[b.slotLease(actor.Slot)]; actor.Session == session && actor.Slot >= 0 && holder != session {
				t.Logf("%s was late with slot %d, epoch %d, which %s held", session, actor.Slot, actor.Epoch, holder)
				late = true
			}
		}
		if !late && !ended {
			return errors.New("neither")
		}
		return nil
	})
	if err == nil && !late {
		err = fmt.Errorf("session %s has ended, and no late request of it is in the logs", session)
	}
	return err
}

// hasEnded reports whether the process of a session has ended: the next one of its replica has a
// session.
func (b *bed) hasEnded(ctx context.Context, session string) (bool, error) {
	now, err := b.session(ctx, replicaOf(session))
	return now != "" && now != session, err
}
