package runner

import (
	"context"
	"fmt"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// discard is an exporter to nowhere: what is measured is the work in the pass, and the copies for
// the exporter.
type discard struct{}

func (discard) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (discard) Shutdown(context.Context) error                             { return nil }

// BenchmarkTracedPass is a pass with three decisions, and nothing that takes time: what a pass
// costs without its work.
func BenchmarkTracedPass(b *testing.B) {
	for _, variant := range []struct {
		name  string
		ratio float64
	}{{"off", 0}, {"10%", 0.1}, {"100%", 1}} {
		b.Run(variant.name, func(b *testing.B) {
			provider := trace.TracerProvider(noop.NewTracerProvider())
			if variant.ratio > 0 {
				sdk := sdktrace.NewTracerProvider(sdktrace.WithBatcher(discard{}), sdktrace.WithSampler(telemetry.Lifetimes(variant.ratio)))
				b.Cleanup(func() { _ = sdk.Shutdown(context.WithoutCancel(b.Context())) })
				provider = sdk
			}
			pass := passOf(nil, nil)
			r, err := New(Config[types.NamespacedName]{
				Name: "bench", Tracer: provider.Tracer(""),
				Root: func(key types.NamespacedName) types.UID { return types.UID(key.Name) },
				Reconcile: func(ctx context.Context, _ types.NamespacedName) (Result, error) {
					return pass.Run(ctx, &script{actions: []string{"a", "b"}})
				},
			})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(r.queue.ShutDown)
			keys := make([]types.NamespacedName, 1000)
			for i := range keys {
				keys[i] = types.NamespacedName{Namespace: "n", Name: fmt.Sprintf("machine-%d", i)}
			}
			ctx := telemetry.WithOwner(klog.NewContext(b.Context(), klog.Background()), telemetry.Owner{
				Replica: "r", Session: "s", Slot: 1, Epoch: 2,
			})
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := r.reconcile(ctx, keys[i%len(keys)]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
