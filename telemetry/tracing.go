package telemetry

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// ServiceName is the name of the fleet in traces, unless OTEL_SERVICE_NAME says another.
const ServiceName = "machine-controller-fleet"

// NewTracerProvider returns a provider that exports over OTLP as the OTEL_* variables say, and a function that sends
// what is left and ends it. Without an endpoint, or with OTEL_SDK_DISABLED, the provider does nothing.
// replica is the name of this process in the traces, and version that of its build. Errors: variables that cannot be understood.
func NewTracerProvider(ctx context.Context, replica, version string) (trace.TracerProvider, func(context.Context) error, error) {
	idle := func(context.Context) error { return nil }
	if disabled, _ := strconv.ParseBool(os.Getenv("OTEL_SDK_DISABLED")); disabled || !endpointSet() {
		return noop.NewTracerProvider(), idle, nil
	}
	exporter, err := newExporter(ctx)
	if err != nil {
		return nil, nil, err
	}
	attributes, err := newResource(ctx, replica, version)
	if err != nil {
		return nil, nil, err
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(attributes))
	return provider, provider.Shutdown, nil
}

// newResource describes this process in traces.
func newResource(ctx context.Context, replica, version string) (*resource.Resource, error) {
	described, err := resource.New(ctx,
		resource.WithAttributes(
			attribute.String("service.name", ServiceName), attribute.String("service.instance.id", replica), attribute.String("service.version", version),
		),
		resource.WithFromEnv(), // last, so that it wins
		resource.WithTelemetrySDK(),
	)
	if err != nil {
		return nil, fmt.Errorf("read OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME: %w", err)
	}
	return described, nil
}

func endpointSet() bool {
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

func newExporter(ctx context.Context) (*otlptrace.Exporter, error) {
	protocol := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
	if protocol == "" {
		protocol = os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL")
	}
	var exporter *otlptrace.Exporter
	var err error
	switch protocol {
	case "", "grpc":
		exporter, err = otlptracegrpc.New(ctx)
	case "http/protobuf":
		exporter, err = otlptracehttp.New(ctx)
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL: expected grpc or http/protobuf, got %q", protocol)
	}
	if err != nil {
		return nil, fmt.Errorf("start the OTLP exporter: %w", err)
	}
	return exporter, nil
}
