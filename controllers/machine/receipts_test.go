package machine

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// kindAndRule contains the fields of a receipt that the tests compare.
type kindAndRule struct {
	Kind    receipt.Kind
	Rule    receipt.Rule
	Outcome receipt.Outcome
}

// wantReceipts compares the deletion log with receipts that have all the facts about machine m,
// whose Node joined.
func (b *bench) wantReceipts(want ...kindAndRule) {
	b.Helper()
	all, err := b.receipts.List()
	b.must(err)
	var got []kindAndRule
	for _, r := range all {
		got = append(got, kindAndRule{r.Kind, r.Rule, r.Outcome})
		hasNames := r.ProviderID != ""
		switch r.Kind {
		case receipt.Machine:
			hasNames = hasNames && r.Name == "m" && r.UID != "" && r.Node == "m"
		case receipt.VM:
			hasNames = hasNames && r.Machine == "m" && r.MachineUID != "" && r.Node == "m"
		case receipt.Node:
			hasNames = hasNames && r.Name == "m" && r.UID != "" && r.Machine == "m" && r.MachineUID != ""
		case receipt.RenderedMachineConfig:
			hasNames = false // the machine controller deletes none
		}
		if !hasNames || r.Namespace != "n" || r.Evidence == "" || !r.Time.Equal(time.Now()) && r.Time.After(time.Now()) {
			b.Errorf("receipt %+v", r)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		b.Errorf("receipts (-want +got):\n%s", diff)
	}
}

// withoutReceipts returns Events without those about receipts. A process that goes on with the
// deletion of a VM calls the driver once, and has its own receipt.
func withoutReceipts(events []string) []string {
	return slices.DeleteFunc(events, func(event string) bool { return event == "Normal "+v1alpha1.EventDeleting })
}

// createUnderSet creates a set and its machine "m", which runs. If decided, the set has recorded
// that it deletes the machine.
func (b *bench) createUnderSet(decided bool) {
	b.Helper()
	set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "set"}}
	set = apiserver.Add(b.server, set)
	m := b.create(func(m *v1alpha1.Machine) {
		m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, v1alpha1.SchemeGroupVersion.WithKind("MachineSet"))}
	})
	b.becomes(v1alpha1.MachineRunning, time.Minute)
	in := machinefacts.Intents{
		Delete: []machinefacts.Deletion{{Name: "m", UID: m.UID, Why: receipt.Because(receipt.ScaledDown, "5 machines for 4 replicas")}},
	}
	if decided {
		in.Write(set)
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": set.Annotations}})
		b.must(err)
		b.server.Merge("machinesets", "n", "set", string(patch))
	}
}

// TestReceipts has the ways by which Machine, VM and Node are deleted, each by the whole
// controller.
func TestReceipts(t *testing.T) {
	accepted := func(rule receipt.Rule, kinds ...receipt.Kind) (all []kindAndRule) {
		for _, kind := range kinds {
			all = append(all, kindAndRule{kind, rule, receipt.Accepted})
		}
		return all
	}
	for name, c := range map[string]struct {
		do     func(b *bench)
		want   []kindAndRule
		events int
	}{
		"a client deletes the machine": {func(b *bench) {
			b.create()
			b.becomes(v1alpha1.MachineRunning, time.Minute)
			b.delete()
		}, accepted(receipt.MachineDeleted, receipt.VM, receipt.Node), 2},
		"a client deletes the machine of a set, which has an Event, too": {func(b *bench) {
			b.createUnderSet(false)
			b.delete()
		}, accepted(receipt.MachineDeleted, receipt.VM, receipt.Node), 3},
		"its set deletes the machine": {func(b *bench) {
			b.createUnderSet(true)
			b.delete()
		}, accepted(receipt.ScaledDown, receipt.VM, receipt.Node), 2},
		"an annotation requests it": {func(b *bench) {
			b.create()
			b.becomes(v1alpha1.MachineRunning, time.Minute)
			b.annotateNode(v1alpha1.AnnotationTriggerDeletion, "true")
		}, accepted(receipt.DeletionTriggered, receipt.Machine, receipt.VM, receipt.Node), 3},
		"a client deletes the Node, and so the fleet does not": {func(b *bench) {
			b.create()
			b.becomes(v1alpha1.MachineRunning, time.Minute)
			b.changeNode(func(node *corev1.Node) { node.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
		}, accepted(receipt.NodeDeleted, receipt.Machine, receipt.VM), 2},
		"another process goes on": {func(b *bench) {
			b.createUnderSet(true)
			b.cloud.Fail(fakecloud.Fault{Code: driver.PermissionDenied}, driver.OpDelete)
			b.delete()
			b.pass(time.Minute)
			b.server.Delete("machinesets", "n", "set")
			b.takeOver(time.Minute)
			b.cloud.Work()
		}, accepted(receipt.ScaledDown, receipt.VM, receipt.Node), 2},
		"the cloud does not answer at first": {func(b *bench) {
			b.create()
			b.becomes(v1alpha1.MachineRunning, time.Minute)
			b.cloud.Fail(fakecloud.Fault{Code: driver.DeadlineExceeded}, driver.OpDelete)
			b.delete()
			b.pass(time.Hour)
			b.cloud.Work()
		}, append([]kindAndRule{{receipt.VM, receipt.MachineDeleted, receipt.Unknown}},
			accepted(receipt.MachineDeleted, receipt.VM, receipt.Node)...), 2},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				c.do(b)
				b.pass(24 * time.Hour)
				if m := b.get(); m != nil {
					b.Fatalf("the machine is %+v", m)
				}
				b.wantReceipts(c.want...)
				row, _ := v1alpha1.FindEventReason(v1alpha1.EventDeleting)
				if n := b.reported.Count(row); n != c.events {
					b.Errorf("%d Events %s, want %d", n, row.Reason, c.events)
				}
			})
		})
	}
}

// TestDeletionWithoutVMLeavesNoReceipt: the driver is called for what a failed create has left, and
// there is no VM.
func TestDeletionWithoutVMLeavesNoReceipt(t *testing.T) {
	onBench(t, func(b *bench) {
		b.cloud.Fail(fakecloud.Fault{Code: driver.Internal}, driver.OpCreate)
		b.create(withoutDeadline)
		b.pass(time.Hour)
		b.delete()
		b.pass(time.Hour)
		if m := b.get(); m != nil {
			b.Fatalf("the machine is %+v", m)
		}
		b.wantReceipts()
	})
}
