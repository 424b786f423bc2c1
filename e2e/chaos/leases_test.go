//go:build e2e

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// emptied is a patch that clears the holder of a Lease.
const emptied = `{"spec":{"holderIdentity":null}}`

// loseSession deletes the session Lease of a replica, or empties it. Its process ends as soon as it
// observes that, and the next one starts another session.
func loseSession(t *testing.T, b *bed, take func(t *testing.T, lease string)) {
	name, before := b.worker(t)
	take(t, member.SessionLeaseName(harness.FleetName, name))
	if err := harness.Eventually(b.ctx, name+" has a new session", func(ctx context.Context) error {
		now, err := b.session(ctx, name)
		if err == nil && (now == "" || now == before) {
			return fmt.Errorf("its Lease is held by %q", now)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	b.ready(t, name)
}

// slotLeasesDeleted deletes the Leases of a few slots. Their holders stop as soon as they observe
// it, and the leader creates them again; the new ones cannot be acquired for 15 s.
func slotLeasesDeleted(t *testing.T, b *bed) {
	began := map[int]time.Time{}
	for range 5 {
		slot := b.random.IntN(b.slots)
		if began[slot].IsZero() {
			began[slot] = time.Now()
		}
		b.deleteLease(t, b.slotLease(slot))
	}
	for slot, from := range began {
		b.oneHolder(t, slot)
		b.recorder.Reset(slot, from, time.Now())
	}
}

// reportsChanged deletes the report of a replica, and edits that of another by hand. Each replica
// writes its own again.
func reportsChanged(t *testing.T, b *bed) {
	one, session := b.worker(t)
	other := replicaOf(b.otherSession(t, session))
	b.deleteLease(t, member.ReportLeaseName(harness.FleetName, one))
	b.patchLease(t, member.ReportLeaseName(harness.FleetName, other), fmt.Sprintf(
		`{"metadata":{"annotations":{%q:"0:-1,x:y,99999:7",%q:"{"}},"spec":{"holderIdentity":"ghost_abcde"}}`,
		v1alpha1.AnnotationWeights, v1alpha1.AnnotationCounts))
	for _, replica := range []string{one, other} {
		if err := harness.Eventually(b.ctx, replica+" has reported again", func(ctx context.Context) error {
			now, err := b.session(ctx, replica)
			if err != nil {
				return err
			}
			report, err := b.lab.Control.CoordinationV1().Leases(harness.FleetNamespace).Get(ctx,
				member.ReportLeaseName(harness.FleetName, replica), metav1.GetOptions{})
			if err != nil {
				return err
			}
			if counts := report.Annotations[v1alpha1.AnnotationCounts]; member.Holder(report) != now || len(counts) < 2 {
				return fmt.Errorf("the report is that of %q, with the counts %q", member.Holder(report), counts)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// handEdit is an edit of a slot Lease by a user, where only the fleet should write.
type handEdit struct {
	name string
	// patch returns the edit of the current Lease, given the session of another replica.
	patch func(lease *coordinationv1.Lease, other string) string
	// changesHands reports whether the holder loses the slot, so that it has to be acquired again.
	changesHands bool
	// resets reports whether the epoch goes back.
	resets bool
}

// handEdits are all, the mildest first.
func handEdits() []handEdit {
	holds := func(session string) string { return fmt.Sprintf(`{"spec":{"holderIdentity":%q}}`, session) }
	assigns := func(replica string, epoch int64) string {
		return fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},"spec":{"leaseTransitions":%d}}`,
			v1alpha1.AnnotationAssignedReplica, replica, epoch)
	}
	return []handEdit{
		{"no holder", func(*coordinationv1.Lease, string) string { return emptied }, true, false},
		{"a holder whose name is no session's", func(*coordinationv1.Lease, string) string { return holds("other-holder") }, true, false},
		{"a session that never was", func(*coordinationv1.Lease, string) string { return holds("ghost_abcde") }, true, false},
		{"a session that lives", func(_ *coordinationv1.Lease, other string) string { return holds(other) }, true, false},
		{"an earlier epoch, and no holder", func(*coordinationv1.Lease, string) string {
			return `{"spec":{"holderIdentity":null,"leaseTransitions":0}}`
		}, true, true},
		{"a later epoch, and another assigned replica", func(lease *coordinationv1.Lease, other string) string {
			return assigns(replicaOf(other), member.Transitions(lease)+1000)
		}, false, false},
		{"an assigned replica that does not exist", func(lease *coordinationv1.Lease, _ string) string {
			return assigns("ghost", member.Transitions(lease))
		}, false, false},
	}
}

// slotLeaseEdited edits slot Leases by hand. Each time the slot has one holder in the end, the
// assigned replica, under a new epoch: a name that is written into a Lease does not become the
// holder by that. The checker decides whether what two sessions did meanwhile is a fault.
func slotLeaseEdited(t *testing.T, b *bed, edits []handEdit) {
	for _, edit := range edits {
		slot := b.random.IntN(b.slots)
		start := time.Now()
		before, edited := b.edit(t, slot, edit)
		after := b.oneHolder(t, slot)
		if edit.resets {
			b.recorder.Reset(slot, start, time.Now())
		}
		least := member.Transitions(edited)
		if edit.changesHands {
			least++
		}
		if member.Transitions(after) < least {
			t.Errorf("%s: slot %d is held by %s under epoch %d, want at least %d",
				edit.name, slot, member.Holder(after), member.Transitions(after), least)
		} else {
			t.Logf("%s: slot %d, which %s held, is held by %s after %.1f s",
				edit.name, slot, member.Holder(before), member.Holder(after), time.Since(start).Seconds())
		}
	}
}

// edit patches the Lease of a slot while that has one holder. The patch applies to that version of
// the Lease: it is rejected, and repeated, when the slot has moved in between.
func (b *bed) edit(t *testing.T, slot int, edit handEdit) (before, edited *coordinationv1.Lease) {
	t.Helper()
	for {
		before = b.oneHolder(t, slot)
		var patch map[string]map[string]any
		if err := json.Unmarshal([]byte(edit.patch(before, b.otherSession(t, member.Holder(before)))), &patch); err != nil {
			t.Fatal(err)
		}
		if patch["metadata"] == nil {
			patch["metadata"] = map[string]any{}
		}
		patch["metadata"]["resourceVersion"] = before.ResourceVersion
		text, err := json.Marshal(patch)
		if err != nil {
			t.Fatal(err)
		}
		edited, err = b.tryPatchLease(before.Name, string(text))
		if apierrors.IsConflict(err) {
			t.Logf("%s: slot %d has moved: %v", edit.name, slot, err)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return before, edited
	}
}

// oneHolder waits until a slot is held by a session of its assigned replica, and only that session
// reports it, under the epoch of the Lease. It returns the Lease.
func (b *bed) oneHolder(t *testing.T, slot int) (lease *coordinationv1.Lease) {
	t.Helper()
	if err := harness.Eventually(b.ctx, fmt.Sprintf("slot %d has one holder", slot), func(ctx context.Context) (err error) {
		api := b.lab.Control.CoordinationV1().Leases(harness.FleetNamespace)
		if lease, err = api.Get(ctx, b.slotLease(slot), metav1.GetOptions{}); err != nil {
			return err
		}
		holder := member.Holder(lease)
		if holder == "" || replicaOf(holder) != lease.Annotations[v1alpha1.AnnotationAssignedReplica] {
			return fmt.Errorf("it is held by %q and assigned to %q", holder, lease.Annotations[v1alpha1.AnnotationAssignedReplica])
		}
		views, err := b.lab.EverySlots(ctx)
		if err != nil {
			return err
		}
		held := false
		for _, view := range views {
			here, holds := view.Holds(slot)
			switch {
			case holds && view.Session != holder:
				return fmt.Errorf("it is held by %s, and %s reports that it holds it", holder, view.Session)
			case holds:
				held = here.Open && !view.Suspended && here.Epoch == member.Transitions(lease)
			}
		}
		if !held {
			return fmt.Errorf("%s does not report that it holds it and has it open, under epoch %d", holder, member.Transitions(lease))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return lease
}

// otherSession returns the session of another replica than that of a session.
func (b *bed) otherSession(t *testing.T, than string) string {
	t.Helper()
	names, err := b.lab.Replicas(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if session, err := b.session(b.ctx, name); err == nil && session != "" && session != than {
			return session
		}
	}
	t.Fatalf("expected another session than %s among replicas %q", than, names)
	return ""
}

func (b *bed) slotLease(slot int) string {
	return member.SlotLeaseName(harness.FleetName, slot, b.slots)
}

// deleteLease deletes a Lease by hand.
func (b *bed) deleteLease(t *testing.T, name string) {
	t.Helper()
	if err := b.lab.Control.CoordinationV1().Leases(harness.FleetNamespace).Delete(b.ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// patchLease changes a Lease by hand.
func (b *bed) patchLease(t *testing.T, name, patch string) *coordinationv1.Lease {
	t.Helper()
	lease, err := b.tryPatchLease(name, patch)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func (b *bed) tryPatchLease(name, patch string) (*coordinationv1.Lease, error) {
	return b.lab.Control.CoordinationV1().Leases(harness.FleetNamespace).Patch(b.ctx, name, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{})
}
