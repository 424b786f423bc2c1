package namespacelease

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
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
	b.leases.cfg.Refused = func(refused Key, why Refusal, known map[types.UID]bool) map[types.UID]bool {
		got = append(got, report{refused, why.Other, known})
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
		b.leases.report(step.key, Refusal{Other: step.other})
		if diff := cmp.Diff(step.want, got); diff != "" || len(b.leases.reported) != step.left {
			t.Errorf("%v by %q: %d are left, want %d; reports (-want +got):\n%s", step.key, step.other, len(b.leases.reported), step.left, diff)
		}
	}
	if count := b.leases.CountRefused(); count != 0 {
		t.Errorf("%d namespaces count as refused although their Leases are free", count)
	}
	b.leases.cfg.Refused = func(Key, Refusal, map[types.UID]bool) map[types.UID]bool {
		b.leases.reported[elsewhere] = refusal{why: Refusal{Other: "another"}}
		return roots
	}
	b.leases.reportRoots(elsewhere)
	if now := b.leases.reported[elsewhere]; now.why.Other != "another" || now.roots != nil {
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

// labeled makes the namespaces of a bench selected by a label.
func (b *bench) labeled() (label func(policy.Selection)) {
	var selection atomic.Int32
	b.leases.cfg.Selection = func(string) policy.Selection { return policy.Selection(selection.Load()) }
	return func(is policy.Selection) {
		selection.Store(int32(is))
		b.leases.SelectionChanged("n")
	}
}

func TestNamespaceIsLeftWhenNoWorkRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := benchOf(t, "root")
		label := b.labeled()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		if err := b.leases.Start(ctx); err != nil {
			t.Fatal(err)
		}
		go b.leases.Run(ctx)
		gate := Counted(b.leases, func(key Key) string { return key.Namespace }, runner.Grouper[Key](grouping{b}))
		for _, name := range names() {
			b.setHolder(name, "fleet")
		}
		synctest.Wait()
		_, done, ok := gate.Admit(t.Context(), Key{"n", 3})
		if !ok || !b.leases.Served("n", 3) || b.leases.KeptOut("n") || !b.leases.Holds("n") || !b.leases.Serves("n") {
			t.Fatal("the namespace is selected, and not served")
		}
		label(policy.Undetermined)
		synctest.Wait()
		if !b.leases.Served("n", 3) || !b.leases.KeptOut("n") {
			t.Error("until the labels are known, the namespace is served by its Leases, and work that needs none waits")
		}
		label(policy.NotSelected)
		synctest.Wait()
		if b.leases.Served("n", 3) || !b.leases.KeptOut("n") || b.leases.Holds("n") || b.leases.Serves("n") ||
			b.holders() != [2]string{"fleet", "fleet"} {
			t.Errorf("while a pass runs the namespace is not served, and keeps its Leases; the holders are %q", b.holders())
		}
		done()
		synctest.Wait()
		if got := b.holders(); got != [2]string{} {
			t.Errorf("no pass runs: the holders are %q, want none", got)
		}
		label(policy.Undetermined)
		b.leases.Served("n", 3)
		synctest.Wait()
		if got := b.holders(); got != [2]string{} {
			t.Errorf("the labels are not known: the holders are %q, want none", got)
		}
		label(policy.Selected)
		b.leases.Served("n", 3)
		synctest.Wait()
		if !b.leases.Served("n", 3) || b.holders() != [2]string{"fleet", "fleet"} {
			t.Errorf("selected again: the holders are %q", b.holders())
		}
	})
}

// grouping is a Gate with one group.
type grouping struct{ *bench }

// Group is that of runner.Grouper.
func (grouping) Group(Key) int { return 0 }

// The replica that left a namespace is another one, and its release has not arrived here.
func TestCachedLeasesOfAnOpenedSlotAreReadLive(t *testing.T) {
	b := unstarted(t, "root")
	label := b.labeled()
	for i, name := range names() {
		b.setHolder(name, "second")
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, ResourceVersion: "1"}}
		lease.Spec.HolderIdentity = new("fleet")
		if err := b.leases.informers[i].GetStore().Add(lease); err != nil {
			t.Fatal(err)
		}
	}
	decide := func() bool {
		if _, err := b.leases.reconcile(t.Context(), Key{"n", 3}); err != nil {
			t.Error(err)
		}
		return b.leases.Served("n", 3)
	}
	if b.leases.Served("n", 3) || decide() {
		t.Error("served although another fleet holds the Leases")
	}
	for _, name := range names() {
		b.setHolder(name, "fleet")
	}
	if !decide() {
		t.Error("not served although the fleet holds the Leases")
	}
	if b.leases.Dropped([]int{4}); !b.leases.Served("n", 3) {
		t.Error("not served after another slot was lost")
	}
	if b.leases.Dropped([]int{3}); b.leases.Served("n", 3) {
		t.Error("served from the cache after the slot was lost")
	}
	if !decide() {
		t.Error("not served after the slot was opened again")
	}
	label(policy.NotSelected)
	decide()
	if label(policy.Selected); b.leases.Served("n", 3) {
		t.Error("served from the cache after the namespace was left")
	}
}

// The other fleet acquires the Leases a moment later, or they stay free.
func TestUnselectedNamespaceIsReportedWhenThatLasts(t *testing.T) {
	b := unstarted(t, "root")
	b.labeled()(policy.NotSelected)
	var got []Refusal
	roots := map[types.UID]bool{"u": true}
	b.leases.cfg.Refused = func(_ Key, why Refusal, _ map[types.UID]bool) map[types.UID]bool {
		got = append(got, why)
		return roots
	}
	step := func(after time.Duration, reports, count int) {
		t.Helper()
		b.clock.Step(after)
		b.leases.Served("n", 3)
		if _, err := b.leases.reconcile(t.Context(), Key{"n", 3}); err != nil {
			t.Error(err)
		}
		if len(got) != reports || b.leases.CountUnselected() != count || b.leases.CountRefused() != 0 {
			t.Errorf("after %s: %d reports, want %d; %d namespaces are counted, want %d",
				after, len(got), reports, b.leases.CountUnselected(), count)
		}
	}
	step(0, 0, 0)
	step(policy.Unchanged-1, 0, 0)
	step(1, 1, 1)
	roots = nil
	step(policy.Unchanged, 2, 0) // no root is left
	roots = map[types.UID]bool{"v": true}
	step(policy.Unchanged-1, 2, 0)
	step(policy.Unchanged, 3, 1)
	if got[2] != (Refusal{Unselected: true}) {
		t.Errorf("reported %v", got)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: v1alpha1.LeaseManager, ResourceVersion: "1"}}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = new("second"), new(int32(math.MaxInt32))
	if err := b.leases.informers[0].GetStore().Add(lease); err != nil {
		t.Fatal(err)
	}
	step(time.Hour, 3, 0)
}
