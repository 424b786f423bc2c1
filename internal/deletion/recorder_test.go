package deletion

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	testclock "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func deletion() Deletion {
	return Deletion{
		Object: receipt.Object{Kind: receipt.Machine, Namespace: "n", Name: "m", UID: "u", Node: "node-m"},
		Reason: receipt.Because(receipt.ScaledDown, "5 machines for 4 replicas"),
		About: []runtime.Object{
			&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m"}}, &v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "d"}},
		},
	}
}

// owned returns a context of a pass under a slot, in a trace, with a log that is kept.
func owned(t *testing.T) (context.Context, *ktesting.BufferTL) {
	t.Helper()
	log := &ktesting.BufferTL{}
	ctx := klog.NewContext(t.Context(), ktesting.NewLogger(log, ktesting.NewConfig()))
	ctx = trace.ContextWithSpanContext(ctx,
		trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled}))
	return telemetry.WithOwner(ctx, telemetry.Owner{Replica: "r-0", Session: "r-0_abcde", Slot: 7, Epoch: 12}), log
}

func TestDeleteAcceptedLeavesReceiptEverywhere(t *testing.T) {
	ctx, log := owned(t)
	var file bytes.Buffer
	registry, emitted := prometheus.NewRegistry(), events.NewFakeRecorder(10)
	r := NewRecorder(testclock.NewFakePassiveClock(noon), NewFile(&file), registry)
	// Of Machines, Nodes, VMs, other resources and configurations.
	const deletions, errors, possible = "mcf_deletions_total", "mcf_deletion_log_errors_total", 8 + 9 + 10 + 3 + 1
	if n, err := testutil.GatherAndCount(registry, deletions); err != nil || n != possible {
		t.Errorf("%s has %d series before a deletion, %v; want %d", deletions, n, err, possible)
	}
	if _, err := r.Delete(ctx, emitted, deletion(), func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	slot, epoch := 7, int64(12)
	want := receipt.Receipt{
		Time: noon, Object: deletion().Object, Reason: deletion().Reason, Outcome: receipt.Accepted,
		By: receipt.By{Replica: "r-0", Session: "r-0_abcde", Slot: &slot, Epoch: &epoch, TraceID: "01000000000000000000000000000000"},
	}
	var got receipt.Receipt
	if err := json.Unmarshal(file.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("deletion log (-want +got):\n%s", diff)
	}
	for range deletion().About {
		if got := <-emitted.Events; got != "Normal Deleting "+want.Text() {
			t.Errorf("Event %q", got)
		}
	}
	for _, want := range []string{
		"Started deletion", `kind="Machine"`, `machine="n/m"`, `uid="u"`, `node="node-m"`, `rule="ScaledDown"`,
		`evidence="5 machines for 4 replicas"`, `outcome="Accepted"`, "slot=7", "epoch=12",
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log has no %s: %s", want, log.String())
		}
	}
	if n := testutil.ToFloat64(r.receipts.WithLabelValues("Machine", "ScaledDown")); n != 1 {
		t.Errorf("mcf_deletions_total is %v, want 1", n)
	}
	if n, err := testutil.GatherAndCount(registry, deletions, errors); err != nil || n != possible+1 {
		t.Errorf("%d series after a deletion, %v; want %d", n, err, possible+1)
	}
}

func TestDeleteByLeaderNamesNoSlot(t *testing.T) {
	var file bytes.Buffer
	r := NewRecorder(testclock.NewFakePassiveClock(noon), NewFile(&file), nil)
	ctx := telemetry.WithOwner(t.Context(), telemetry.Owner{Replica: "r-0", Session: "s", Leader: true})
	if _, err := r.Delete(ctx, &events.FakeRecorder{}, deletion(), func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(file.String(), `"leader":true`) || strings.Contains(file.String(), "slot") ||
		strings.Contains(file.String(), "epoch") {
		t.Errorf("deletion log: %s", file.String())
	}
}

// fencedError is an error of the fence.
type fencedError struct{ error }

func (fencedError) NotOurs() bool { return true }

func TestFailedDeletionLeavesReceiptOnlyIfItMayHaveTakenEffect(t *testing.T) {
	machines := schema.GroupResource{Resource: "machines"}
	for _, c := range []struct {
		name string
		err  error
		want receipt.Outcome
	}{
		{"had nothing to delete", ErrNothing, ""},
		{"gone already", apierrors.NewNotFound(machines, "m"), ""},
		{"has changed", apierrors.NewConflict(machines, "m", errors.New("changed")), ""},
		{"forbidden", apierrors.NewForbidden(machines, "m", errors.New("no")), ""},
		{"too many requests", apierrors.NewTooManyRequests("later", 1), ""},
		{"refused by the fence", fencedError{errors.New("fenced")}, ""},
		{"connection refused", syscall.ECONNREFUSED, ""},
		{"server error", apierrors.NewInternalError(errors.New("etcd")), receipt.Unknown},
		{"no answer", context.DeadlineExceeded, receipt.Unknown},
		{"rejected by the cloud", driver.Errorf(driver.OpDelete, driver.PermissionDenied, "no"), ""},
		{"no VM", driver.Errorf(driver.OpDelete, driver.NotFound, "none"), ""},
		{"no answer of the cloud", driver.Errorf(driver.OpDelete, driver.DeadlineExceeded, "slow"), receipt.Unknown},
		{"cloud is not available", driver.Errorf(driver.OpDelete, driver.Unavailable, "later"), receipt.Unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			var file bytes.Buffer
			r := NewRecorder(testclock.NewFakePassiveClock(noon), NewFile(&file), nil)
			emitted := events.NewFakeRecorder(10)
			_, err := r.Delete(t.Context(), emitted, deletion(), func(context.Context) error { return c.err })
			if !errors.Is(err, c.err) {
				t.Errorf("error %v, want %v", err, c.err)
			}
			var got receipt.Receipt
			if file.Len() > 0 {
				if err := json.Unmarshal(file.Bytes(), &got); err != nil {
					t.Fatal(err)
				}
			}
			if len(emitted.Events) > 0 {
				t.Errorf("Event %q of a deletion that was not accepted", <-emitted.Events)
			}
			if got.Outcome != c.want {
				t.Errorf("outcome %q, want %q", got.Outcome, c.want)
			}
		})
	}
}

// full is a file on a disk without space.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestDeleteWhenDeletionLogFailsIsLoggedAndCounted(t *testing.T) {
	ctx, log := owned(t)
	r := NewRecorder(testclock.NewFakePassiveClock(noon), NewFile(full{}), nil)
	if _, err := r.Delete(ctx, &events.FakeRecorder{}, deletion(), func(context.Context) error { return nil }); err != nil {
		t.Errorf("the deletion has failed with its log: %v", err)
	}
	if n := testutil.ToFloat64(r.unlogged); n != 1 {
		t.Errorf("mcf_deletion_log_errors_total is %v, want 1", n)
	}
	if !strings.Contains(log.String(), "Failed to write to the deletion log") {
		t.Errorf("log: %s", log.String())
	}
}

func TestOpenAppendsWholeLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deletions.jsonl")
	if err := os.WriteFile(path, []byte("before\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var writing sync.WaitGroup
	for range 100 {
		writing.Go(func() {
			if err := file.Append([]byte("a line\n")); err != nil {
				t.Error(err)
			}
		})
	}
	writing.Wait()
	check := func(want string) {
		t.Helper()
		got, err := os.ReadFile(path)
		if err != nil || string(got) != want {
			t.Errorf("file has %q, %v; want %q", got, err, want)
		}
	}
	check("before\n" + strings.Repeat("a line\n", 100))
	if err := os.Truncate(path, 0); err != nil { // as logrotate does with copytruncate
		t.Fatal(err)
	}
	if err := file.Append([]byte("after\n")); err != nil {
		t.Fatal(err)
	}
	check("after\n")
}

func TestOpenWithoutPathIsNoLog(t *testing.T) {
	if file, err := OpenFile(""); file != nil || err != nil {
		t.Errorf("got %v, %v; want neither", file, err)
	}
	if file, err := OpenFile(Stdout); file == nil || file.to != os.Stdout || err != nil {
		t.Errorf("got %v, %v; want the standard output", file, err)
	}
	if _, err := OpenFile(filepath.Join(t.TempDir(), "no folder", "x")); err == nil || !strings.Contains(err.Error(), "--deletion-log") {
		t.Errorf("got %v, want an error that names the flag", err)
	}
}

// TestRepeatedDeletionHasOneReceiptOfEachOutcome: a cloud that does not answer is asked again and
// again, and so is one that takes its time.
func TestRepeatedDeletionHasOneReceiptOfEachOutcome(t *testing.T) {
	var file bytes.Buffer
	r := NewRecorder(testclock.NewFakePassiveClock(noon), NewFile(&file), nil)
	d := deletion()
	for i, c := range []struct {
		err  error
		want receipt.Outcome
		has  int
	}{
		{ErrNothing, "", 0},
		{context.DeadlineExceeded, receipt.Unknown, 1},
		{context.DeadlineExceeded, receipt.Unknown, 1},
		{ErrNothing, receipt.Unknown, 1},
		{nil, receipt.Accepted, 2},
		{nil, receipt.Accepted, 2},
		{context.DeadlineExceeded, receipt.Accepted, 2},
	} {
		d.Recorded, _ = r.Delete(t.Context(), &events.FakeRecorder{}, d, func(context.Context) error { return c.err })
		if n := strings.Count(file.String(), "\n"); d.Recorded != c.want || n != c.has {
			t.Errorf("request %d: outcome %q and %d receipts, want %q and %d", i, d.Recorded, n, c.want, c.has)
		}
	}
}

func TestTextOfAllNamesSome(t *testing.T) {
	ctx, _ := owned(t)
	d := deletion()
	if got, want := TextOfAll(ctx, []Deletion{d}), "Deleted 1 machines, by replica r-0, slot 7, epoch 12, "+
		"trace 01000000000000000000000000000000: m (Node node-m): ScaledDown: 5 machines for 4 replicas"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	d.Node = ""
	if got := TextOfAll(ctx, []Deletion{d}); !strings.HasSuffix(got, ": m: ScaledDown: 5 machines for 4 replicas") {
		t.Errorf("without a Node: got %q", got)
	}
	d.Node = "node-m"
	if got := TextOfAll(ctx, slices.Repeat([]Deletion{d}, 100)); strings.Count(got, "m (Node node-m)") != mostNamed ||
		!strings.HasSuffix(got, "; 95 more") {
		t.Errorf("got %q", got)
	}
}

// TestReceiptLeavesOutAnUnknownOwnerTraceAndFile: what is not known is left out of the Event and
// the log.
func TestReceiptLeavesOutAnUnknownOwnerTraceAndFile(t *testing.T) {
	log, emitted := &ktesting.BufferTL{}, events.NewFakeRecorder(10)
	ctx := klog.NewContext(t.Context(), ktesting.NewLogger(log, ktesting.NewConfig()))
	r := NewRecorder(testclock.NewFakePassiveClock(noon), nil, nil)
	if outcome, err := r.Delete(ctx, emitted, deletion(), func(context.Context) error { return nil }); err != nil ||
		outcome != receipt.Accepted {
		t.Errorf("outcome %q, error %v", outcome, err)
	}
	if got := <-emitted.Events; !strings.HasSuffix(got, "; by replica ") {
		t.Errorf("Event %q names an owner or a trace", got)
	}
	for _, absent := range []string{"providerID", "machineUID", "replica=", "leader", "slot", "epoch", "traceID"} {
		if strings.Contains(log.String(), absent) {
			t.Errorf("log has %s, which is not known: %s", absent, log.String())
		}
	}
	if n := testutil.ToFloat64(r.unlogged); n != 0 {
		t.Errorf("mcf_deletion_log_errors_total is %v without a deletion log", n)
	}
}

func TestKeysAndValuesNameEachKind(t *testing.T) {
	machine := klog.KRef("n", "m")
	for _, c := range []struct {
		object receipt.Object
		want   []any
	}{
		{
			receipt.Object{Kind: receipt.Machine, Namespace: "n", Name: "m", UID: "u", ProviderID: "p", Node: "o"},
			[]any{"kind", receipt.Machine, "machine", machine, "node", "o", "providerID", "p", "uid", "u"},
		},
		{
			receipt.Object{Kind: receipt.VM, Namespace: "n", Machine: "m", MachineUID: "u", ProviderID: "p", Node: "o"},
			[]any{"kind", receipt.VM, "machine", machine, "node", "o", "providerID", "p", "machineUID", "u"},
		},
		{
			receipt.Object{Kind: receipt.Node, Namespace: "n", Name: "o", UID: "v", Machine: "m", MachineUID: "u"},
			[]any{"kind", receipt.Node, "machine", machine, "node", "o", "uid", "v", "machineUID", "u"},
		},
		{
			receipt.Object{Kind: "Disk", Namespace: "n", Name: "d", Machine: "m"},
			[]any{"kind", receipt.Kind("Disk"), "id", "d", "machine", machine},
		},
		{
			receipt.Object{Kind: receipt.RenderedMachineConfig, Name: "r", UID: "u"},
			[]any{"kind", receipt.RenderedMachineConfig, "name", "r", "uid", "u"},
		},
	} {
		if diff := cmp.Diff(c.want, keysAndValues(t.Context(), receipt.Receipt{Object: c.object})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.object.Kind, diff)
		}
	}
	ctx := telemetry.WithObject(t.Context(), telemetry.KeyMachine, machine)
	if got := keysAndValues(ctx, receipt.Receipt{Object: receipt.Object{Kind: receipt.Machine, Namespace: "n", Name: "m"}}); len(got) != 2 {
		t.Errorf("the machine of the pass is named twice: %v", got)
	}
}
