// Package telemetry sets up what operators look at: tracing, and the spans around calls of drivers.
//
// Tracing follows the standard OTEL_* environment variables. Where they name neither an endpoint nor an exporter nothing is started,
// and every span is the no-op span.
package telemetry
