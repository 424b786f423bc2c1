package session

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace/noop"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/protocol"
)

// A slot whose holder released it is handed over, also if the watch has not shown the release: the Lease may have been read instead.
func TestArrivalsAreMeasuredByTheHolderThatWasReplaced(t *testing.T) {
	for name, tc := range map[string]struct {
		from               string
		handOver, takeOver int
	}{
		"released": {"", 1, 0},
		"held":     {"fleet-0_abcde", 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			s := protocol.Settings{Fleet: "fleet", Slots: 8, Replica: "fleet-1", Session: "fleet-1_abcde"}
			a := newArrivals(s, noop.NewTracerProvider().Tracer(""), NewMetrics(registry))
			at := func(second int) member.Moment {
				return member.Moment{Wall: time.Date(2026, 1, 2, 3, 4, second, 0, time.UTC), Monotonic: time.Duration(second) * time.Second}
			}
			lease := func(name string, annotations map[string]string) *coordinationv1.Lease {
				return &coordinationv1.Lease{
					ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
					Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("fleet-0_abcde")},
				}
			}
			a.seen(lease(member.SessionLeaseName("fleet", "fleet-0"), nil), at(1))
			a.seen(lease(member.SlotLeaseName("fleet", 3, 8), map[string]string{v1alpha1.AnnotationAssignedReplica: "fleet-1"}), at(2))
			a.acquired(protocol.Change{Slot: 3, Epoch: 2, Kind: protocol.Acquired, From: tc.from}, at(4))
			a.opened(t.Context(), 3, at(5))
			for metric, want := range map[string]int{"mcf_hand_over_seconds": tc.handOver, "mcf_take_over_seconds": tc.takeOver} {
				families, err := registry.Gather()
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range families {
					if f.GetName() == metric {
						if got := f.GetMetric()[0].GetHistogram().GetSampleCount(); got != uint64(want) {
							t.Errorf("%s has %d samples, want %d", metric, got, want)
						}
					}
				}
			}
		})
	}
}
