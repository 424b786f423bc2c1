package receipt

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func vm() Receipt {
	slot, epoch := 7, int64(12)
	return Receipt{
		Time:   time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Object: Object{Kind: VM, Namespace: "shoot--a", ProviderID: "sim:///vm-1", Machine: "m", MachineUID: "u", Node: "node-m"},
		Reason: Because(ScaledDown, "5 machines for 4 replicas"), Outcome: Accepted,
		By: By{Replica: "r-0", Session: "r-0_abcde", Slot: &slot, Epoch: &epoch, TraceID: "4bf9"},
	}
}

// TestLineFieldNamesAreStable compares the line of a receipt with the form that
// docs/operations/configure.md documents.
func TestLineFieldNamesAreStable(t *testing.T) {
	leader := Receipt{
		Time: vm().Time, Object: Object{Kind: Node, Name: "node-m", UID: "v"}, Reason: Because(Orphaned, ""), Outcome: Unknown,
		By: By{Replica: "r-0", Session: "r-0_abcde", Leader: true},
	}
	for _, c := range []struct {
		receipt Receipt
		want    string
	}{
		{
			vm(),
			`{"time":"2026-01-02T03:04:05Z","kind":"VM","namespace":"shoot--a","providerID":"sim:///vm-1","machine":"m","machineUID":"u","node":"node-m",` +
				`"rule":"ScaledDown","evidence":"5 machines for 4 replicas","outcome":"Accepted","replica":"r-0","session":"r-0_abcde","slot":7,"epoch":12,"traceID":"4bf9"}` + "\n",
		},
		{
			leader,
			`{"time":"2026-01-02T03:04:05Z","kind":"Node","name":"node-m","uid":"v","rule":"Orphaned","outcome":"Unknown","replica":"r-0","session":"r-0_abcde","leader":true}` + "\n",
		},
	} {
		got, err := c.receipt.Line()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, string(got)); diff != "" {
			t.Errorf("line (-want +got):\n%s", diff)
		}
	}
}

func TestText(t *testing.T) {
	hidden := vm()
	hidden.ProviderID, hidden.By = "", By{Replica: "r-0", Leader: true}
	machine := vm()
	machine.Object = Object{Kind: Machine, Namespace: "shoot--a", Name: "m", UID: "u", Machine: "m", MachineUID: "u", Node: "node-m"}
	bare, node := hidden, vm()
	bare.Object, bare.Reason = Object{Kind: VM, ProviderID: "sim:///vm-1"}, Because(Orphaned, "")
	node.Object, node.By = Object{
		Kind: Node, Name: "node-m", ProviderID: "sim:///vm-1", Machine: "m", Node: "node-m",
	}, By{Replica: "r-0", Slot: vm().Slot}
	unowned := bare
	unowned.By = By{Replica: "r-0", Epoch: vm().Epoch}
	for _, c := range []struct {
		receipt Receipt
		want    string
	}{
		{bare, "Started to delete VM sim:///vm-1: Orphaned; by replica r-0, leader"},
		{node, "Started to delete Node node-m of machine m: ScaledDown: 5 machines for 4 replicas; by replica r-0"},
		{unowned, "Started to delete VM sim:///vm-1: Orphaned; by replica r-0"},
		{vm(), "Started to delete VM sim:///vm-1 of machine m (Node node-m): ScaledDown: 5 machines for 4 replicas; by replica r-0, slot 7, " +
			"epoch 12, trace 4bf9"},
		{
			machine,
			"Started to delete Machine m (Node node-m): ScaledDown: 5 machines for 4 replicas; by replica r-0, slot 7, epoch 12, trace 4bf9",
		},
		{hidden, "Started to delete VM without a known provider ID of machine m (Node node-m): ScaledDown: 5 machines for 4 replicas; " +
			"by replica r-0, leader"},
	} {
		if got := c.receipt.Text(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestEvidenceOfAReasonIsBounded(t *testing.T) {
	if got := len(Because(Unhealthy, strings.Repeat("x", 10_000)).Evidence); got != mostEvidence {
		t.Errorf("evidence of a long message has %d bytes, want %d", got, mostEvidence)
	}
}

// TestIsValidOnlyKnownRules: a reason that was read from an object may be forged.
func TestIsValidOnlyKnownRules(t *testing.T) {
	for _, rule := range Rules() {
		if !Because(rule, "").IsValid() {
			t.Errorf("%s is not valid", rule)
		}
	}
	if Because("Forged", "").IsValid() || (Reason{}).IsValid() {
		t.Error("a rule that does not exist is valid")
	}
}

// Evidence that quotes clouds and kubelets is left out.
func TestByKindHasEachRule(t *testing.T) {
	seen := map[Rule]bool{}
	for _, rules := range ByKind() {
		for _, rule := range rules {
			seen[rule] = true
		}
	}
	for _, rule := range Rules() {
		if !seen[rule] {
			t.Errorf("%s deletes no kind", rule)
		}
	}
}

func TestSummary(t *testing.T) {
	quoting := []Rule{Unhealthy, CreationFailed, Orphaned}
	for _, rule := range Rules() {
		want := string(rule) + ": evidence"
		if slices.Contains(quoting, rule) {
			want = string(rule)
		}
		if got := Because(rule, "evidence").Summary(); got != want {
			t.Errorf("%s: %q, want %q", rule, got, want)
		}
	}
}
