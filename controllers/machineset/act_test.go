package machineset

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// TestNewMachines have what follows from their set from the first request on: no further write is
// needed.
func TestNewMachines(t *testing.T) {
	for name, tc := range map[string]struct {
		timeout string
		traced  bool
	}{
		"plain":                            {},
		"an effective creation timeout":    {timeout: "7m0s"},
		"their creation is part of traces": {traced: true},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.create(1, func(set *v1alpha1.MachineSet) {
					if tc.timeout != "" {
						set.Annotations = map[string]string{v1alpha1.AnnotationEffectiveCreationTimeout: tc.timeout}
					}
				})
				m := b.machines()[0]
				if got := m.Labels[v1alpha1.LabelSlot]; got != "7" {
					b.Errorf("slot %q, want that of the set", got)
				}
				timeout, has := m.Annotations[v1alpha1.AnnotationEffectiveCreationTimeout]
				if timeout != tc.timeout || has != (tc.timeout != "") || (m.Spec.MachineConfiguration != nil) != has {
					b.Errorf("creation timeout %q (%t), configuration %+v, want %q", timeout, has, m.Spec.MachineConfiguration, tc.timeout)
				}
				if trace, has := m.Annotations[v1alpha1.AnnotationTraceparent]; has != tc.traced || (trace != "") != tc.traced {
					b.Errorf("traceparent %q (%t), want one: %t", trace, has, tc.traced)
				}
				if n := b.server.Count("patch machines"); n > 0 {
					b.Errorf("the machine was written %d times after its creation", n)
				}
			}, func(cfg *Config) {
				if tc.traced {
					cfg.Tracer = sdktrace.NewTracerProvider().Tracer("test")
				}
			})
		})
	}
}

// TestNameOfANewMachineIsInUse: another client creates a machine of that name just before. It is
// the set's only if it has both the set as its controller and the ordinal; otherwise it is left
// alone, and the set creates one under another name.
func TestNameOfANewMachineIsInUse(t *testing.T) {
	for name, tc := range map[string]struct {
		owner   string // the controller of the machine
		ordinal string
		creates int // requests of the set
	}{
		"without a controller":                    {ordinal: "0", creates: 2},
		"of another set":                          {owner: "other", ordinal: "0", creates: 2},
		"of the set, with the ordinal":            {owner: "set", ordinal: "0", creates: 1},
		"of the set, with another ordinal":        {owner: "set", ordinal: "5", creates: 2},
		"of the set, with no ordinal that is one": {owner: "set", ordinal: "none", creates: 2},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.create(0)
				set := b.set()
				m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
					Namespace: "n", Name: machinefacts.Name("set", set.UID, 0), Annotations: map[string]string{v1alpha1.AnnotationOrdinal: tc.ordinal},
				}}
				if owner := set.DeepCopy(); tc.owner != "" {
					if tc.owner == "other" {
						owner.Name, owner.UID = tc.owner, "another-uid"
					} else {
						m.Labels = map[string]string{v1alpha1.LabelName: "set"}
					}
					m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, v1alpha1.SchemeGroupVersion.WithKind("MachineSet"))}
				}
				creates := 0
				b.server.Fault(func(r apiserver.Request) error {
					if r.Verb != "create" {
						return nil
					}
					if creates++; creates == 1 {
						apiserver.Add(b.server, m)
					}
					return nil
				})
				b.patch(`{"spec":{"replicas":1}}`)
				b.pass(time.Minute)
				owned := slices.DeleteFunc(b.machines(), func(m *v1alpha1.Machine) bool {
					return !metav1.IsControlledBy(m, set) || m.DeletionTimestamp != nil
				})
				if creates != tc.creates || len(owned) != 1 {
					b.Errorf("%d requests to create a machine, the set has %d; want %d, 1", creates, len(owned), tc.creates)
				}
				if created := slices.DeleteFunc(b.reported.List(), func(e string) bool {
					return !strings.HasSuffix(e, v1alpha1.EventSuccessfulCreate)
				}); len(created) != 1 {
					b.Errorf("Events %v, want one for the one machine", created)
				}
			})
		})
	}
}

// Nothing was created, and no Event reports that machines were.
func TestRejectedCreationEmitsNoSuccess(t *testing.T) {
	onBench(t, func(b *bench) {
		b.server.Refuse("create machines", errors.New("not now"))
		b.create(3)
		if got := b.reported.List(); !slices.Equal(got, []string{"Warning " + v1alpha1.ReasonFailedCreate}) {
			b.Errorf("Events %v, want %s alone", got, v1alpha1.ReasonFailedCreate)
		}
	})
}

// TestDeletionThatComesLate: a machine that does not exist any more counts as deleted, and one that
// has changed is left alone until the next pass, which its event starts. Neither is a failure.
func TestDeletionThatComesLate(t *testing.T) {
	for name, tc := range map[string]struct {
		answer  error
		deletes int // requests
		events  []string
	}{
		"it does not exist any more": {
			apierrors.NewNotFound(v1alpha1.Resource("machines"), "m"), 1, []string{"Normal " + v1alpha1.EventSuccessfulDelete},
		},
		// once in each pass
		"it has changed": {apierrors.NewConflict(v1alpha1.Resource("machines"), "m", errors.New("it has changed")), 2, nil},
		"it is deleted":  {nil, 1, []string{"Normal " + v1alpha1.EventDeleting, "Normal " + v1alpha1.EventSuccessfulDelete}},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.create(1)
				m := b.machines()[0]
				b.patchMachine(m.Name,
					fmt.Sprintf(`{"status":{"currentStatus":{"phase":"Failed"},"lastOperation":{"type":%q}}}`, v1alpha1.MachineOperationHealthCheck),
					"status")
				b.pass(time.Second)
				root := &v1alpha1.MachineSet{}
				disruption.WriteDisruptions(root, []disruption.Disruption{{Name: m.Name, UID: m.UID}})
				before, deletes := len(b.reported.List()), 0
				b.server.Fault(func(r apiserver.Request) error {
					if r.Verb == "delete" {
						deletes++
						return tc.answer
					}
					return nil
				})
				b.patch(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationDisruptions, root.Annotations[v1alpha1.AnnotationDisruptions])
				b.pass(time.Second / 10)
				events := slices.DeleteFunc(b.reported.List()[before:], func(e string) bool { return e == "Normal "+v1alpha1.EventSuccessfulCreate })
				if deletes != tc.deletes || !slices.Equal(events, tc.events) {
					b.Errorf("%d requests to delete it, Events %q; want %d, %q", deletes, events, tc.deletes, tc.events)
				}
				if stale, isDeleted := testutil.ToFloat64(b.controller.stale), tc.answer == nil; (stale == 1) != isDeleted {
					b.Errorf("%v deleted machines are counted as unhealthy, want it counted: %t", stale, isDeleted)
				}
			})
		})
	}
}
