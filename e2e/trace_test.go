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
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/telemetry"
)

// TestTraces: a slot is handed over and taken over, and Jaeger has spans of that, and of the life of a machine under three owners.
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
}

// sampledRatio is a tenth, and at most mostRoots MachineDeployments are created to find one that is sampled: none of them is once in 10^9.
const (
	sampledRatio = 0.1
	mostRoots    = 200
)

// TestSampledLivesAreWhole: of ten MachineDeployments one is traced, with its MachineSet and its machines, by each of their owners; of the
// others nothing is; and each link leads to a span.
func TestSampledLivesAreWhole(t *testing.T) {
	t.Parallel()
	lab := startLab(t, "sampled", func(o *harness.Options) { o.Replicas, o.Tracing, o.TraceRatio = 2, true, sampledRatio })
	s := &traced{space: newSpace(t, lab, "sampled", "")}
	sampled, other := s.roots()
	for _, pool := range []string{sampled, other} {
		s.resize(pool, 2)
		s.running(pool, 2)
	}
	s.findSlot(sampled)
	moved := s.handsOver(sampled)
	second := s.serving(s.slot, moved.from.replica) // rebalancing may move the slot again after this
	set, machine := s.family(sampled)
	s.finds("hand-over", owner{}, moved.from.next())
	s.finds("release-slot", moved.from, nil)

	machines, err := s.machines(t.Context(), sampled)
	s.must(err)
	for _, m := range machines {
		of := childOf(&m)
		s.finds("driver.CreateMachine", owner{}, tags{"machine.name": of.name})
		s.finds("reconcile machine", moved.from, of.key(), of.linked)
		s.finds("reconcile machine", second, of.key(), of.linked)
	}
	s.finds("reconcile machineset", owner{}, set.key(), machine.made)
	s.finds("reconcile machinedeployment", owner{}, tags{"key": s.name + "/" + sampled, "generation": "2"}, set.made) // the change of its replicas
	s.eventually("all links lead to spans", s.linksResolve)
	s.onlySampled()
	tree, err := lab.Trace(t.Context(), s.name+"/"+machine.name, moved.from.epoch+1)
	s.must(err)
	t.Log("\n" + tree)
	for _, part := range []string{"hand-over", "CreateVM: the cloud has no VM of the machine", "driver.CreateMachine  simulated", "create machines  control  201", moved.from.session, moved.to} {
		if !strings.Contains(tree, part) {
			t.Errorf("lab trace does not show %q", part)
		}
	}
}

// TestFailedPassesAreKept: of machines that are not sampled those passes are exported in which a call of the cloud has failed.
func TestFailedPassesAreKept(t *testing.T) {
	t.Parallel()
	const almostNone = 1e-12
	lab := startLab(t, "kept", func(o *harness.Options) {
		o.Tracing, o.TraceRatio, o.FleetFlags = true, almostNone, "--trace-keep-failed"
	})
	s := &traced{space: newSpace(t, lab, "kept", "")}
	s.must(lab.Cloud.Set(t.Context(), `{"faults":[{"kind":"quota","rate":1,"operations":["CreateInstance"]}]}`))
	s.deploy("pool", 1)
	s.findSlot("pool")
	create := s.finds("driver.CreateMachine", owner{}, tags{"driver.code": "ResourceExhausted"})
	s.finds("reconcile machine", owner{}, nil, func(s harness.Span) bool { return s.Trace == create.Trace })
}

// roots creates MachineDeployments without machines, one that is sampled and one that is not.
func (s *traced) roots() (sampled, other string) {
	s.Helper()
	for i := range mostRoots {
		name := fmt.Sprintf("pool-%d", i)
		d := s.deploy(name, 0)
		if telemetry.IsChosen(string(d.UID), sampledRatio) {
			sampled = name
		} else {
			other = name
		}
		if sampled != "" && other != "" {
			return sampled, other
		}
	}
	s.Fatalf("none of %d MachineDeployments is sampled, or all are", mostRoots)
	return "", ""
}

// resize changes the replicas of a MachineDeployment.
func (s *traced) resize(pool string, replicas int) {
	s.Helper()
	_, err := s.api().MachineDeployments(s.name).Patch(s.Context(), pool, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{})
	s.must(err)
}

// linksResolve returns an error if a span is linked to one that Jaeger does not have.
func (s *traced) linksResolve(ctx context.Context) error {
	spans, err := s.lab.AllSpans(ctx)
	if err != nil {
		return err
	}
	known, links := map[string]bool{}, 0
	for _, span := range spans {
		known[span.Trace+"/"+span.ID] = true
	}
	for _, span := range spans {
		for _, link := range span.Links {
			links++
			if !known[link] {
				return fmt.Errorf("%s in trace %s is linked to %s, which Jaeger does not have", span.Name, span.Trace, link)
			}
		}
	}
	if links == 0 {
		return errors.New("there are no links")
	}
	return nil
}

// onlySampled checks that only roots that are sampled have passes.
func (s *traced) onlySampled() {
	s.Helper()
	spans, err := s.lab.AllSpans(s.Context())
	s.must(err)
	for _, span := range spans {
		if root, passes := span.Tags["root.uid"]; passes && !telemetry.IsChosen(root, sampledRatio) {
			s.Errorf("%s of %s is traced, and its root %s is not sampled", span.Name, span.Tags["key"], root)
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
