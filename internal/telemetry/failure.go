package telemetry

import (
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
)

// Fail marks a span as failed. Of errors of clouds and API servers the span has the code and not
// the text, which may repeat what was sent: user data, tokens, credentials. The text is in logs and
// in the status of the object.
func Fail(span trace.Span, err error) {
	if !span.IsRecording() {
		return
	}
	kind, description := describe(err)
	span.SetAttributes(text(errorTypeKey, kind))
	failWith(span, description)
}

// failWith marks a span as failed, with a description without text of others.
func failWith(span trace.Span, description string) {
	span.SetStatus(codes.Error, bounded.Text(description, bounded.Message))
}

// describe returns the type of an error, and a description without text of others.
func describe(err error) (kind, description string) {
	if refused, ok := errors.AsType[*driver.Error](err); ok {
		return refused.Code.String(), fmt.Sprintf("driver %s: %s", refused.Op, refused.Code)
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) { // an APIStatus is no error by its type
		is := status.Status()
		return string(is.Reason), fmt.Sprintf("API server: %s (%d)", is.Reason, is.Code)
	}
	return fmt.Sprintf("%T", err), err.Error()
}
