package telemetry

import (
	"context"
	"fmt"
	"strings"

	"github.com/cespare/xxhash/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
)

// eventAction is the action of Events of the fleet that need no other one.
const eventAction = "Reconcile"

// emitDepth is how many functions are between the caller of Emit and the line of the log, whose
// caller is that one: Emit, EmitUnlogged, EmitAction, and Eventf of the recorder.
const emitDepth = 4

// Emit records an Event about an object and, with a recorder of Damped, a line of the log with the
// same reason and message. Whether it is a warning follows from its reason, which is one of
// v1alpha1.EventReasons; the text is cut to the maximum length. In a pass of a stage that is
// sampled, the text ends with the ID of the stage's trace. Events with another text are others.
func Emit(ctx context.Context, recorder events.EventRecorder, about runtime.Object, reason, text string) {
	if logging, ok := recorder.(events.EventRecorderLogger); ok {
		recorder = logging.WithLogger(klog.FromContext(ctx).WithCallDepth(emitDepth).WithValues(keysOf(ctx, about)...))
	}
	if pass, traced := ctx.Value(passKey{}).(tracedPass); traced && pass.stage != (Stage{}) && pass.span.SpanContext().IsSampled() {
		id := pass.stage.TraceID()
		if !strings.Contains(text, id) {
			text = bounded.Text(text, bounded.Message-64) + " (trace " + id + ")"
		}
	}
	// Events with the same action would become one, with the text of the first.
	emit(recorder, about, reason, fmt.Sprintf("%s-%08x", eventAction, uint32(xxhash.Sum64String(text))), text)
}

// InStage returns a context in which the Events of a pass have the ID of the trace of a stage: one
// that the pass has begun, or has begun and ended. With the zero Stage they have that of the pass.
func InStage(ctx context.Context, s Stage) context.Context {
	pass, traced := ctx.Value(passKey{}).(tracedPass)
	if !traced || s == (Stage{}) {
		return ctx
	}
	pass.stage = s
	return context.WithValue(ctx, passKey{}, pass)
}

// emit is EmitAction at the depth that emitDepth counts.
func emit(recorder events.EventRecorder, about runtime.Object, reason, action, text string) {
	EmitAction(recorder, about, nil, reason, action, text)
}

// EmitUnlogged is Emit without a line of the log: for callers that log the same with more keys, or
// once for many objects.
func EmitUnlogged(recorder events.EventRecorder, about runtime.Object, reason, text string) {
	EmitAction(recorder, about, nil, reason, eventAction, text)
}

// EmitAction is EmitUnlogged with an action and a related object, which may be nil. Events about an
// object with the same reason, action and related object become one, with the text of the first.
func EmitAction(recorder events.EventRecorder, about, related runtime.Object, reason, action, text string) {
	kind := corev1.EventTypeWarning // so that a reason without a row is not overlooked
	if row, known := v1alpha1.FindEventReason(reason); known && !row.Warning {
		kind = corev1.EventTypeNormal
	}
	recorder.Eventf(about, related, kind, reason, action, "%s", bounded.Text(text, bounded.Message))
}
