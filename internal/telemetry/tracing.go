package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// ServiceName is the name of the fleet in traces, unless OTEL_SERVICE_NAME sets another.
const ServiceName = "machine-controller-fleet"

// Process contains what traces state about the process that sends them.
type Process struct {
	// Fleet is the name of the fleet, Replica that of this process within it, and Version that of its
	// build.
	Fleet, Replica, Version string
	// Namespace and PodUID are those of the pod that the process runs in; "" when they are not known.
	Namespace, PodUID string
}

// NewTracerProvider returns a provider that exports spans as the OTEL_* variables configure, and a
// function that sends the remaining spans and stops it. Of these variables the sampler has another
// meaning: its ratio is that of roots whose whole life is sampled. The provider does nothing
// without an endpoint or a name of an exporter, with the exporter none, and with OTEL_SDK_DISABLED.
// Errors: invalid variables.
func NewTracerProvider(ctx context.Context, p Process) (trace.TracerProvider, func(context.Context) error, error) {
	idle := func(context.Context) error { return nil }
	if disabled, _ := strconv.ParseBool(os.Getenv("OTEL_SDK_DISABLED")); disabled || !configured() {
		return noop.NewTracerProvider(), idle, nil
	}
	ratio, err := samplingRatio()
	if err != nil {
		return nil, nil, err
	}
	exporter, err := newExporter(ctx)
	if err != nil {
		return nil, nil, err
	}
	if autoexport.IsNoneSpanExporter(exporter) || ratio == 0 {
		return noop.NewTracerProvider(), idle, exporter.Shutdown(ctx)
	}
	attributes, err := newResource(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithResource(attributes), sdktrace.WithIDGenerator(StageIDs{}),
		sdktrace.WithSpanProcessor(newPasses(sdktrace.NewBatchSpanProcessor(exporter, batches()...))),
		sdktrace.WithSampler(Lifetimes(ratio)))
	return provider, provider.Shutdown, nil
}

// exportEvery is how often spans are sent: what a process has not sent when it is killed is lost.
// OTEL_BSP_SCHEDULE_DELAY replaces it.
const exportEvery = time.Second

func batches() []sdktrace.BatchSpanProcessorOption {
	if os.Getenv("OTEL_BSP_SCHEDULE_DELAY") != "" {
		return nil
	}
	return []sdktrace.BatchSpanProcessorOption{sdktrace.WithBatchTimeout(exportEvery)}
}

// newResource returns the description of this process in traces.
func newResource(ctx context.Context, p Process) (*resource.Resource, error) {
	attributes := []attribute.KeyValue{
		attribute.String("service.name", ServiceName), attribute.String("service.namespace", p.Fleet),
		attribute.String("service.instance.id", p.Replica), attribute.String("service.version", p.Version),
		attribute.String("k8s.pod.name", p.Replica),
	}
	for key, value := range map[attribute.Key]string{namespaceKey: p.Namespace, "k8s.pod.uid": p.PodUID} {
		if value != "" {
			attributes = append(attributes, key.String(value))
		}
	}
	described, err := resource.New(ctx,
		resource.WithAttributes(attributes...),
		resource.WithFromEnv(), // last, so that it takes precedence
		resource.WithTelemetrySDK(),
	)
	if err != nil {
		return nil, fmt.Errorf("read OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME: %w", err)
	}
	return described, nil
}

const (
	exporterVariable       = "OTEL_TRACES_EXPORTER"
	protocolVariable       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	tracesProtocolVariable = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
)

// configured reports whether the environment names a destination of spans. OpenTelemetry's default,
// a collector on this host, would have every replica without one log errors.
func configured() bool {
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "" ||
		os.Getenv(exporterVariable) != ""
}

// newExporter returns the exporter that the environment names, OTLP by default. OTLP uses gRPC
// unless a protocol is named; autoexport's own default is http/protobuf, which the ports of our
// examples and of existing installations do not accept.
func newExporter(ctx context.Context) (sdktrace.SpanExporter, error) {
	exporter, protocol := os.Getenv(exporterVariable), cmp.Or(os.Getenv(tracesProtocolVariable), os.Getenv(protocolVariable))
	create := func(ctx context.Context) (sdktrace.SpanExporter, error) { return autoexport.NewSpanExporter(ctx) }
	if protocol == "" && (exporter == "" || exporter == "otlp") {
		create = func(ctx context.Context) (sdktrace.SpanExporter, error) { return otlptracegrpc.New(ctx) }
	}
	created, err := create(ctx)
	if err != nil {
		return nil, fmt.Errorf(
			"start the exporter of traces: expected %s to be otlp, console or none, got %q, and %s or %s to be grpc or http/protobuf, got %q: %w",
			exporterVariable, exporter, tracesProtocolVariable, protocolVariable, protocol, err,
		)
	}
	return created, nil
}
