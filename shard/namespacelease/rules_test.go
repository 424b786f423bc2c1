package namespacelease

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/namespacelease/policy"
)

func TestUnlistedLeasesKeepOut(t *testing.T) {
	b := unstarted(t)
	if !b.leases.KeptOut("n") {
		t.Error("not kept out before the Leases are listed")
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := b.leases.Start(ctx); err == nil {
		t.Error("Start returns no error although the Leases are not listed")
	}
}

func TestHeldNamespacesAreSorted(t *testing.T) {
	b := newBench(t)
	var want []string
	for i := range 9 {
		want = append(want, fmt.Sprint("n", i))
		for _, name := range names() {
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: want[i], Name: name}}
			lease.Spec.HolderIdentity = new("fleet")
			apiserver.Add(b.server, &v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: want[i], Name: "root"}})
			apiserver.Add(b.server, lease)
		}
	}
	b.becomes("held", func() bool { return len(b.leases.Held()) == len(want) })
	if got := b.leases.Held(); !slices.Equal(got, want) {
		t.Errorf("held %v, want %v", got, want)
	}
}

// The Leases of all namespaces are in the cache of each replica.
func TestOpenedSlotsAreEnqueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "root")
		b.setHolder(v1alpha1.LeaseManager, "mcm")
		synctest.Wait()
		for slot, want := range map[int][]Key{3: {{"n", 3}}, 4: nil} {
			b.admitted = nil
			b.leases.Opened([]int{slot})
			synctest.Wait()
			if diff := cmp.Diff(want, b.admitted); diff != "" {
				t.Errorf("enqueued when slot %d was opened (-want +got):\n%s", slot, diff)
			}
		}
	})
}

func TestServedNamespaceCausesNoWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "root")
		for _, name := range names() {
			b.setHolder(name, "fleet")
		}
		synctest.Wait()
		b.admitted = nil
		b.served(true)
		b.clock.Step(recheckAfter)
		synctest.Wait()
		if slices.Contains(b.admitted, Key{"n", 7}) {
			t.Error("the slot with work is enqueued again")
		}
		b.server.Forget()
		b.leases.runner.Enqueue(Key{"n", 7}) // whose holder has nothing to release
		synctest.Wait()
		if log := b.server.Log(); len(log) > 0 {
			t.Errorf("requests of another slot's holder: %v", log)
		}
	})
}

func TestHolderThatKeepsOutIsReported(t *testing.T) {
	of := func(slot int) Key { return Key{"n", slot} }
	elsewhere, roots := Key{"other", 7}, map[types.UID]bool{"u": true}
	type report struct {
		Key   Key
		Other string
		Known map[types.UID]bool
	}
	var got []report
	b := unstarted(t)
	b.leases.cfg.Refused = func(refused Key, other string, known map[types.UID]bool) map[types.UID]bool {
		got = append(got, report{refused, other, known})
		return roots
	}
	for _, step := range []struct {
		key   Key
		other string
		want  []report
		left  int
	}{
		{of(7), "mcm", []report{{of(7), "mcm", nil}}, 1},
		{of(7), "mcm", nil, 1},
		{of(8), "mcm", []report{{of(8), "mcm", nil}}, 2},
		{elsewhere, "mcm", []report{{elsewhere, "mcm", nil}}, 3},
		{of(7), "another", []report{{of(7), "another", nil}}, 3},
		{of(7), "", nil, 1}, // all slots of the namespace are forgotten
	} {
		got = nil
		b.leases.report(step.key, step.other)
		if diff := cmp.Diff(step.want, got); diff != "" || len(b.leases.reported) != step.left {
			t.Errorf("%v by %q: %d are left, want %d; reports (-want +got):\n%s", step.key, step.other, len(b.leases.reported), step.left, diff)
		}
	}
	if count := b.leases.CountRefused(); count != 0 {
		t.Errorf("%d namespaces count as refused although their Leases are free", count)
	}
	b.leases.cfg.Refused = func(Key, string, map[types.UID]bool) map[types.UID]bool {
		b.leases.reported[elsewhere] = refusal{other: "another"}
		return roots
	}
	b.leases.reportRoots(elsewhere)
	if now := b.leases.reported[elsewhere]; now.other != "another" || now.roots != nil {
		t.Errorf("the holder that came during the report is replaced: %v", now)
	}
}

// What is known of a namespace is from the time before its Leases moved.
func TestChangesOfLeases(t *testing.T) {
	lease := func(holder, version string) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: v1alpha1.LeaseManager, ResourceVersion: version},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
		}
	}
	for name, test := range map[string]struct {
		was, is                 *coordinationv1.Lease
		moved, ending, isNewest bool
	}{
		"created":    {nil, lease("mcm", "2"), true, false, true},
		"renewed":    {lease("mcm", "1"), lease("mcm", "2"), false, true, true},
		"unchanged":  {lease("mcm", "1"), lease("mcm", "1"), false, true, false},
		"moved":      {lease("mcm", "1"), lease("another", "2"), true, true, true},
		"released":   {lease("mcm", "1"), lease("", "2"), true, true, true},
		"deleted":    {lease("mcm", "1"), nil, true, true, false},
		"no holders": {&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "n"}}, lease("", "2"), false, true, true},
	} {
		b := unstarted(t)
		var notified []string
		for range 2 {
			b.leases.OnChange(func(namespace string) { notified = append(notified, namespace) })
		}
		first := firstSeen{"1", b.clock.Now()}
		b.leases.since[0]["n"], b.leases.ending["n"] = first, true
		b.leases.reported = map[Key]refusal{{"n", 7}: {}, {"other", 7}: {}}
		b.clock.Step(time.Second)
		b.leases.changed(0, test.was, test.is)
		want, left := []string(nil), 2
		if test.moved {
			want, left = []string{"n", "n"}, 1
		}
		if !slices.Equal(notified, want) || len(b.leases.reported) != left || b.leases.ending["n"] != test.ending {
			t.Errorf("%s: notified %v, want %v; %d refusals are left, want %d; ending %v",
				name, notified, want, len(b.leases.reported), left, b.leases.ending)
		}
		since, seen := b.leases.since[0]["n"]
		if wantSince := (firstSeen{"2", b.clock.Now()}); test.isNewest && since != wantSince || test.is == nil == seen ||
			!test.isNewest && seen && since != first {
			t.Errorf("%s: seen since %v", name, since)
		}
	}
}

func TestEndOfANamespaceIsNotifiedOnce(t *testing.T) {
	b, notified := unstarted(t), 0
	b.leases.OnChange(func(string) { notified++ })
	for range 2 {
		if b.leases.ends("n"); notified != 1 || !b.leases.isEnding("n") {
			t.Errorf("notified %d times, want once", notified)
		}
	}
}

func TestDurationOfALeaseIsSeen(t *testing.T) {
	b := unstarted(t)
	long, empty := &coordinationv1.Lease{}, &coordinationv1.Lease{}
	long.Namespace, long.Name, long.Spec.LeaseDurationSeconds = "n", v1alpha1.LeaseManager, new(int32(60))
	empty.Namespace, empty.Name = "n", v1alpha1.LeaseMachineController
	for i, lease := range []*coordinationv1.Lease{long, empty} {
		lease.ResourceVersion = "1"
		if err := b.leases.informers[i].GetStore().Add(lease); err != nil {
			t.Fatal(err)
		}
	}
	now := b.clock.Now()
	if diff := cmp.Diff([2]policy.Lease{{Exists: true, Since: now, Duration: time.Minute}, {Exists: true, Since: now}}, b.sees()); diff != "" {
		t.Errorf("Leases (-want +got):\n%s", diff)
	}
}

func TestContentOfLeases(t *testing.T) {
	b := unstarted(t)
	for _, test := range []struct {
		do       policy.Action
		holder   string
		duration int32
	}{{policy.Acquire, "fleet", math.MaxInt32}, {policy.Release, "", 1}, {policy.Acquire, "fleet", math.MaxInt32}} {
		b.clock.Step(time.Hour)
		was := apiserver.Read[coordinationv1.Lease](b.server, "leases", "n", v1alpha1.LeaseManager)
		if done, err := b.leases.write(t.Context(), 0, "n", was, test.do); !done || err != nil {
			t.Fatalf("not written: %v", err)
		}
		now := metav1.NewMicroTime(b.clock.Now())
		want := coordinationv1.LeaseSpec{HolderIdentity: &test.holder, LeaseDurationSeconds: &test.duration, AcquireTime: &now, RenewTime: &now}
		if diff := cmp.Diff(want, apiserver.Read[coordinationv1.Lease](b.server, "leases", "n", v1alpha1.LeaseManager).Spec); diff != "" {
			t.Errorf("after %v (-want +got):\n%s", test.do, diff)
		}
	}
}

// What a conflict shows is seen by the watch. Without the first Lease, the second is not acquired.
func TestWritesThatFail(t *testing.T) {
	leases := coordinationv1.Resource("leases")
	for _, test := range []struct {
		answer error
		fails  bool
	}{
		{apierrors.NewConflict(leases, "", nil), false},
		{apierrors.NewAlreadyExists(leases, ""), false},
		{apierrors.NewNotFound(leases, ""), false},
		{errors.New("away"), true},
	} {
		b := unstarted(t, "root")
		b.server.Refuse("create leases", test.answer)
		result, err := b.leases.reconcile(t.Context(), Key{"n", 7})
		if (err != nil) != test.fails || result.RequeueAfter != retry {
			t.Errorf("%v: requeued after %v, with the error %v", test.answer, result.RequeueAfter, err)
		}
		if n := b.server.Count("create leases"); n != 1 {
			t.Errorf("%v: %d Leases were written, want only the first", test.answer, n)
		}
	}
}
