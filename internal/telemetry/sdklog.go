package telemetry

import (
	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
)

// LogSDK has OpenTelemetry's SDK write its errors and its own log to log. Without it they are
// written to standard error in another format. The SDK has one such log for the whole process.
func LogSDK(log logr.Logger) {
	otel.SetLogger(log)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Error(err, "OpenTelemetry failed") }))
}
