package slotlabel

import (
	"context"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// admissionBench is a gate with an Admission, and the keys that were enqueued again.
type admissionBench struct {
	admission *Admission
	open      bool
	again     []string
	gate      runner.Gate[types.NamespacedName]
}

func newAdmissionBench() *admissionBench {
	h := &admissionBench{open: true}
	h.admission = NewAdmission(func(policy.Kind, types.NamespacedName) bool { return h.open })
	h.gate = gateOf(h.admission, policy.Machine, runner.Open[types.NamespacedName]{}, func(key types.NamespacedName) {
		h.again = append(h.again, key.Name)
	})
	return h
}

// gateOf returns a gate of a kind that enqueues refused keys with a function.
func gateOf(
	a *Admission, kind policy.Kind, inner runner.Gate[types.NamespacedName], enqueue func(types.NamespacedName),
) runner.Gate[types.NamespacedName] {
	gate := a.Gate(kind, inner)
	gate.Notify(enqueue)
	return gate
}

func (h *admissionBench) admit(name string) (done func(), ok bool) {
	_, done, ok = h.gate.Admit(context.Background(), types.NamespacedName{Namespace: "n", Name: name})
	return done, ok
}

func TestRejectedKeyIsEnqueuedAgain(t *testing.T) {
	h := newAdmissionBench()
	h.open = false
	if _, ok := h.admit("a"); ok {
		t.Fatal("admitted")
	}
	h.admission.Retry("other")
	if len(h.again) > 0 {
		t.Errorf("enqueued again: %v, want none", h.again)
	}
	h.open = true
	h.admission.Retry("n")
	h.admission.Retry("n")
	if !slices.Equal(h.again, []string{"a"}) {
		t.Errorf("enqueued again: %v, want a once", h.again)
	}
}

// Several controllers have a gate for one kind; each of them is remembered.
func TestRejectedKeyIsEnqueuedAgainForEachController(t *testing.T) {
	h := newAdmissionBench()
	other := gateOf(h.admission, policy.Machine, runner.Open[types.NamespacedName]{}, func(key types.NamespacedName) {
		h.again = append(h.again, "other "+key.Name)
	})
	h.open = false
	h.admit("a")
	key := types.NamespacedName{Namespace: "n", Name: "a"}
	other.Admit(context.Background(), key)
	h.open = true
	if _, _, ok := other.Admit(context.Background(), key); !ok {
		t.Fatal("not admitted")
	}
	other.Admit(context.Background(), key)
	h.open = false
	other.Admit(context.Background(), key)
	h.admission.Retry("n")
	slices.Sort(h.again)
	if !slices.Equal(h.again, []string{"a", "other a"}) {
		t.Errorf("enqueued again: %v, want each once", h.again)
	}
}

func TestBlockReportsTheEndOfTheLastPass(t *testing.T) {
	h := newAdmissionBench()
	first, _ := h.admit("a")
	second, ok := h.admit("a")
	if !ok {
		t.Fatal("not admitted")
	}
	emptied := 0
	key := types.NamespacedName{Namespace: "n", Name: "a"}
	if h.admission.Block(policy.Machine, key, func() { emptied++ }) {
		t.Error("reported as empty while two passes run")
	}
	if first(); emptied != 0 {
		t.Error("reported as empty while one pass runs")
	}
	if _, ok := h.admit("a"); ok {
		t.Error("admitted although it is blocked")
	}
	if _, ok := h.admit("b"); !ok {
		t.Error("another object is rejected")
	}
	if second(); emptied != 1 {
		t.Errorf("the callback was called %d times, want once", emptied)
	}
	if !h.admission.Block(policy.Machine, key, nil) {
		t.Error("no pass runs, and it is not reported as empty")
	}
	h.admission.Unblock(policy.Machine, key)
	if _, ok := h.admit("a"); !ok || !slices.Equal(h.again, []string{"a"}) {
		t.Errorf("unblocked: admitted %v, enqueued again %v", ok, h.again)
	}
}

// countingGate counts the passes that it has admitted and that have not ended.
type countingGate struct {
	shut    bool
	running int
}

func (g *countingGate) Admit(ctx context.Context, _ types.NamespacedName) (context.Context, func(), bool) {
	if g.shut {
		return nil, nil, false
	}
	g.running++
	return ctx, func() { g.running-- }, true
}

func (*countingGate) Group(key types.NamespacedName) int { return len(key.Name) }

func TestInnerGate(t *testing.T) {
	h, inner := newAdmissionBench(), &countingGate{shut: true}
	h.gate = gateOf(h.admission, policy.Machine, inner, func(types.NamespacedName) {})
	if _, ok := h.admit("a"); ok || len(h.admission.rejected) > 0 {
		t.Errorf("admitted %v although the inner gate is shut, or remembered: %v", ok, h.admission.rejected)
	}
	inner.shut, h.open = false, false
	if _, ok := h.admit("a"); ok || inner.running != 0 {
		t.Errorf("admitted %v, and %d passes of what was rejected have not ended", ok, inner.running)
	}
	h.open = true
	done, _ := h.admit("a")
	if inner.running != 1 {
		t.Errorf("%d passes run, want 1", inner.running)
	}
	if done(); inner.running != 0 {
		t.Errorf("%d passes have not ended", inner.running)
	}
	for gate, want := range map[runner.Gate[types.NamespacedName]]int{h.gate: 4, newAdmissionBench().gate: 0} {
		grouper, ok := gate.(runner.Grouper[types.NamespacedName])
		if !ok || grouper.Group(types.NamespacedName{Name: "four"}) != want {
			t.Errorf("want group %d, as the inner gate has it", want)
		}
	}
}

func TestUnblockEnqueuesOnlyWhatWasBlocked(t *testing.T) {
	h, key := newAdmissionBench(), types.NamespacedName{Namespace: "n", Name: "a"}
	h.open = false
	h.admit("a")
	if h.admission.Unblock(policy.Machine, key); len(h.again) > 0 {
		t.Errorf("enqueued %v, which was not blocked", h.again)
	}
	for range 2 {
		h.admission.Block(policy.Machine, key, nil)
		h.admission.Unblock(policy.Machine, key)
	}
	if !slices.Equal(h.again, []string{"a"}) {
		t.Errorf("enqueued %v, want a once", h.again)
	}
}

// There are many objects, which come and go.
func TestNothingIsKeptOfObjects(t *testing.T) {
	h := newAdmissionBench()
	for _, state := range []string{"after a pass", "after Forget"} {
		done, _ := h.admit("a")
		done()
		if state == "after Forget" {
			h.admission.Block(policy.Machine, types.NamespacedName{Namespace: "n", Name: "a"}, nil)
			h.admit("a")
			h.admission.Forget(policy.Machine, types.NamespacedName{Namespace: "n", Name: "a"})
		}
		if a := h.admission; len(a.running)+len(a.blocked)+len(a.rejected) > 0 {
			t.Errorf("%s: %v, %v, %v", state, a.running, a.blocked, a.rejected)
		}
	}
}
