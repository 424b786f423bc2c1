//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// TestTraces: a slot is handed over and taken over, and Jaeger has spans of that, and of the life of a machine under three owners. Which lives
// are sampled is shown by TestSampledLivesAreWhole of cmd/machine-controller-fleet.
func TestTraces(t *testing.T) {
	t.Parallel()
	lab := startLab(t, "traces", func(o *harness.Options) { o.Replicas, o.Tracing = 3, true })
	s := &traced{space: newSpace(t, lab, "traces", "")}
	s.deploy("pool", 2)
	s.running("pool", 2)
	s.findSlot("pool")

	moved := s.handsOver("pool")
	first := moved.from
	s.finds("hand-over", owner{}, first.next(), isOfAnother, func(s harness.Span) bool { return s.Tags["replica"] == moved.to })
	s.must(lab.Do(t.Context(), first.replica, harness.Stop)) // pending spans are sent before it ends
	set, machine := s.family("pool")
	s.serving(s.slot, first.replica)
	second := s.killOwner(s.slot, func(second owner) {
		s.finds("reconcile machine", second, machine.key()) // sent before its sender is killed
		s.finds("reconcile machineset", second, set.key())
		s.finds("reconcile machinedeployment", second, tags{"key": s.name + "/pool"})
	})
	third := s.serving(s.slot, second.replica)
	s.finds("take-over", owner{}, second.next(), isOfAnother)

	for _, owner := range []owner{first, second, third} {
		s.finds("reconcile machinedeployment", owner, tags{"key": s.name + "/pool"})
		s.finds("reconcile machineset", owner, set.key(), set.linked)
		s.finds("reconcile machine", owner, machine.key(), machine.linked)
	}
	// By any owner at the start: rebalancing may have moved the slot before the fleet was at rest.
	create := s.finds("driver.CreateMachine", owner{}, tags{"machine.name": machine.name})
	s.finds("reconcile machine", owner{}, machine.key(), func(s harness.Span) bool { return s.Trace == create.Trace })
	// The links of the spans of all owners.
	s.finds("reconcile machineset", owner{}, set.key(), machine.made)
	s.finds("reconcile machinedeployment", owner{}, tags{"key": s.name + "/pool"}, set.made)

	tree, err := lab.Trace(t.Context(), s.name+"/"+machine.name, first.epoch+1)
	s.must(err)
	t.Log("\n" + tree)
	for _, part := range []string{"hand-over", "take-over", "CreateVM: the cloud has no VM of the machine", "driver.CreateMachine  simulated", "create machines  control  201", first.session, moved.to} {
		if !strings.Contains(tree, part) {
			t.Errorf("lab trace does not show %q", part)
		}
	}
}

// traced is a namespace whose objects are in one slot.
type traced struct {
	*space

	slot int
}

// findSlot waits until the slot is known.
func (s *traced) findSlot(pool string) {
	s.Helper()
	s.eventually("the slot label is there", func(ctx context.Context) error {
		d, err := s.api().MachineDeployments(s.name).Get(ctx, pool, metav1.GetOptions{})
		if err != nil {
			return err
		}
		s.slot, err = strconv.Atoi(d.Labels[v1alpha1.LabelSlot])
		return err
	})
}

// handsOver requests the hand-over of the slot from a session that has reconciled all objects of a pool. A session that gets the slot
// before the fleet is at rest may give it away again before that.
func (s *traced) handsOver(pool string) move {
	s.Helper()
	set, _ := s.family(pool)
	machines, err := s.machines(s.Context(), pool)
	s.must(err)
	return s.handOver(s.slot, func(ctx context.Context, from owner) error {
		_, err1 := s.span(ctx, "reconcile machinedeployment", from, tags{"key": s.name + "/" + pool})
		_, err2 := s.span(ctx, "reconcile machineset", from, set.key(), set.linked)
		errs := []error{err1, err2}
		for _, m := range machines {
			of := childOf(&m)
			_, err := s.span(ctx, "reconcile machine", from, of.key(), of.linked)
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}

// child is an object that the fleet has created.
type child struct{ namespace, name, traceparent string }

// family returns the MachineSet of a MachineDeployment and one of its machines.
func (s *traced) family(pool string) (set, machine child) {
	s.Helper()
	sets, err := s.api().MachineSets(s.name).List(s.Context(), metav1.ListOptions{LabelSelector: v1alpha1.LabelName + "=" + pool})
	s.must(err)
	machines, err := s.machines(s.Context(), pool)
	s.must(err)
	if len(sets.Items) != 1 || len(machines) == 0 {
		s.Fatalf("expected one MachineSet and some machines, got %d and %d", len(sets.Items), len(machines))
	}
	return childOf(&sets.Items[0]), childOf(&machines[0])
}

func childOf(o metav1.Object) child {
	return child{namespace: o.GetNamespace(), name: o.GetName(), traceparent: o.GetAnnotations()[v1alpha1.AnnotationTraceparent]}
}

// tags are attributes of spans.
type tags map[string]string

// key is the attribute of the child's reconciles.
func (c child) key() tags { return tags{"key": c.namespace + "/" + c.name} }

// made reports whether a span is in the trace of the pass that created, or last sized, the child.
func (c child) made(s harness.Span) bool {
	trace, _ := c.origin()
	return s.Trace == trace
}

// next is the span of the slot's next owner, which may have handed the slot on before the fleet is at rest.
func (o owner) next() tags {
	return tags{"from": o.session, "epoch": strconv.FormatInt(o.epoch+1, 10)}
}

// isOfAnother reports whether a span names another replica and another session.
func isOfAnother(s harness.Span) bool {
	replica, ok := member.ReplicaOf(s.Tags["session"])
	return ok && replica == s.Tags["replica"]
}

// linked reports whether a span is linked to the one that created the child.
func (c child) linked(s harness.Span) bool {
	trace, id := c.origin()
	return slices.Contains(s.Links, trace+"/"+id)
}

// origin is the span that created the child, recorded as version-trace-span-flags.
func (c child) origin() (trace, span string) {
	parts := strings.Split(c.traceparent, "-")
	if len(parts) != 4 {
		return "", ""
	}
	return parts[1], parts[2]
}

// finds waits until Jaeger has a span with the name, owner and attributes, that passes all checks. The zero owner is any.
func (s *traced) finds(name string, by owner, with tags, desired ...func(harness.Span) bool) (found harness.Span) {
	s.Helper()
	s.eventually(fmt.Sprintf("Jaeger has a span %q by %+v with %v", name, by, with), func(ctx context.Context) (err error) {
		found, err = s.span(ctx, name, by, with, desired...)
		return err
	})
	return found
}

// span is finds without the wait.
func (s *traced) span(ctx context.Context, name string, by owner, with tags, desired ...func(harness.Span) bool) (harness.Span, error) {
	search := tags{"slot": strconv.Itoa(s.slot)}
	if by != (owner{}) {
		search["replica"], search["session"], search["epoch"] = by.replica, by.session, strconv.FormatInt(by.epoch, 10)
	}
	maps.Copy(search, with)
	spans, err := s.lab.Spans(ctx, name, search)
	if err != nil {
		return harness.Span{}, err
	}
	for _, span := range spans {
		if !slices.ContainsFunc(desired, func(want func(harness.Span) bool) bool { return !want(span) }) {
			return span, nil
		}
	}
	return harness.Span{}, fmt.Errorf("of %d spans %q with %v none passes the checks", len(spans), name, search)
}
