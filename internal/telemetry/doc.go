// Package telemetry sets up what operators look at: tracing, the spans and metrics of calls of
// drivers, the metrics of requests to API servers, and those of objects.
//
// Tracing follows the standard OTEL_* environment variables. Where they name neither an endpoint
// nor an exporter nothing is started, and every span is the no-op span.
//
// Guarantees: an object has a bounded number of series with labels of bounded size, each once,
// regardless of what a client has written to it; a scrape does not fail for it. Not guaranteed:
// that there are few objects.
package telemetry
