//go:build e2e

package e2e

import (
	"context"
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

// TestTraces: in Jaeger the creation of a machine is one trace, and so are its deletion and a
// rollout, whichever of three owners works on them; a hand-over and a take-over have spans, too.
// Which lives are sampled is shown by TestSampledLivesAreWhole of internal/replica.
func TestTraces(t *testing.T) {
	t.Parallel()
	lab := startLab(t, "traces", func(o *harness.Options) { o.Replicas, o.Tracing = 3, true })
	s := &traced{space: newSpace(t, lab, "traces", "")}
	s.deploy("pool", 2)
	s.running("pool", 2)
	s.findSlot("pool")
	machine := s.machine("pool")
	created := s.finds("create machine", owner{}, machine)
	for _, name := range []string{
		"reconcile machine", "driver.CreateMachine requested", "driver.CreateMachine", "create VM", "claim Node", "wait for a Node to appear",
	} {
		s.finds(name, owner{}, nil, created.SameTrace)
	}
	rollout := s.finds("roll out", owner{}, tags{"mcf.machinedeployment.name": "pool"})
	s.finds("reconcile machineset", owner{}, nil, rollout.SameTrace)
	s.finds("reconcile machinedeployment", owner{}, nil, rollout.SameTrace)

	moved := s.handOver(s.slot, func(context.Context, owner) error { return nil })
	first := moved.from
	s.finds("hand-over", owner{}, first.next(), isOfAnother, func(s harness.Span) bool { return s.Tags["mcf.replica"] == moved.to })
	s.must(lab.Do(t.Context(), first.replica, harness.Stop)) // pending spans are sent before it ends
	s.serving(s.slot, first.replica)
	second := s.killOwner(s.slot, func(second owner) {
		s.scale("pool", 3)
		s.finds("reconcile machineset", second, nil) // sent before its sender is killed
	})
	third := s.serving(s.slot, second.replica)
	s.finds("take-over", owner{}, second.next(), isOfAnother)
	s.must(s.api().Machines(s.name).Delete(t.Context(), machine["mcf.machine.name"], metav1.DeleteOptions{}))
	deleted := s.finds("delete machine", owner{}, machine)
	s.finds("driver.DeleteMachine", third, nil, deleted.SameTrace)

	tree, err := lab.Trace(t.Context(), s.name+"/"+machine["mcf.machine.name"], first.epoch+1)
	s.must(err)
	t.Log("\n" + tree)
	for _, part := range []string{
		"take-over", "create VM: the cloud has no VM of the machine", "driver.CreateMachine  simulated", "create machines  control  201",
		third.session,
	} {
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

// machine returns the attribute of spans that names one of the machines of a pool.
func (s *traced) machine(pool string) tags {
	s.Helper()
	machines, err := s.machines(s.Context(), pool)
	s.must(err)
	return tags{"mcf.machine.name": machines[0].Name}
}

// tags are attributes of spans.
type tags map[string]string

// next is the span of the slot's next owner, which may have handed the slot on before the fleet is
// at rest.
func (o owner) next() tags {
	return tags{"mcf.from": o.session, "mcf.epoch": strconv.FormatInt(o.epoch+1, 10)}
}

// isOfAnother reports whether a span names another replica and another session.
func isOfAnother(s harness.Span) bool {
	replica, ok := member.ReplicaOf(s.Tags["mcf.session"])
	return ok && replica == s.Tags["mcf.replica"]
}

// finds waits until Jaeger has a span with the name, owner and attributes, that passes all checks.
// The zero owner is any.
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
	search := tags{}
	if by != (owner{}) {
		search["mcf.slot"] = strconv.Itoa(s.slot)
		search["mcf.replica"], search["mcf.session"], search["mcf.epoch"] = by.replica, by.session, strconv.FormatInt(by.epoch, 10)
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
