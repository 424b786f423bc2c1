package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"

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

// NewTracerProvider returns a provider that exports spans as the OTEL_* variables configure, and a function that sends the remaining spans and
// stops it. The provider does nothing without an endpoint or a name of an exporter, with the exporter none, and with
// OTEL_SDK_DISABLED.
// replica is the name of this process in the traces, and version that of its build. Errors: invalid variables.
func NewTracerProvider(ctx context.Context, replica, version string) (trace.TracerProvider, func(context.Context) error, error) {
	idle := func(context.Context) error { return nil }
	if disabled, _ := strconv.ParseBool(os.Getenv("OTEL_SDK_DISABLED")); disabled || !configured() {
		return noop.NewTracerProvider(), idle, nil
	}
	exporter, err := newExporter(ctx)
	if err != nil {
		return nil, nil, err
	}
	if autoexport.IsNoneSpanExporter(exporter) {
		return noop.NewTracerProvider(), idle, nil
	}
	attributes, err := newResource(ctx, replica, version)
	if err != nil {
		return nil, nil, err
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(attributes))
	return provider, provider.Shutdown, nil
}

// newResource returns the description of this process in traces.
func newResource(ctx context.Context, replica, version string) (*resource.Resource, error) {
	described, err := resource.New(ctx,
		resource.WithAttributes(
			attribute.String("service.name", ServiceName), attribute.String("service.instance.id", replica), attribute.String("service.version", version),
		),
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

// configured reports whether the environment names a destination of spans. OpenTelemetry's default, a collector on this host, would have every
// replica without one log errors.
func configured() bool {
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "" || os.Getenv(exporterVariable) != ""
}

// newExporter returns the exporter that the environment names, OTLP by default. OTLP uses gRPC unless a protocol is named;
// autoexport's own default is http/protobuf, which the ports of our examples and of existing installations do not accept.
func newExporter(ctx context.Context) (sdktrace.SpanExporter, error) {
	exporter, protocol := os.Getenv(exporterVariable), cmp.Or(os.Getenv(tracesProtocolVariable), os.Getenv(protocolVariable))
	create := func(ctx context.Context) (sdktrace.SpanExporter, error) { return autoexport.NewSpanExporter(ctx) }
	if protocol == "" && (exporter == "" || exporter == "otlp") {
		create = func(ctx context.Context) (sdktrace.SpanExporter, error) { return otlptracegrpc.New(ctx) }
	}
	created, err := create(ctx)
	if err != nil {
		return nil, fmt.Errorf("start the exporter of traces: expected %s to be otlp, console or none, got %q, and %s or %s to be grpc or http/protobuf, got %q: %w",
			exporterVariable, exporter, tracesProtocolVariable, protocolVariable, protocol, err)
	}
	return created, nil
}
