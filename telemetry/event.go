package telemetry

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
)

// eventAction is the action of Events of the fleet that need no other one.
const eventAction = "Reconcile"

// Emit records an Event about an object. Whether it is a warning follows from its reason, which is one of
// v1alpha1.EventReasons; the text is cut to the maximum length.
func Emit(recorder events.EventRecorder, about runtime.Object, reason, text string) {
	EmitAction(recorder, about, nil, reason, eventAction, text)
}

// EmitAction is Emit with an action and a related object, which may be nil. Events about an object with the same reason, action and
// related object become one, with the text of the first.
func EmitAction(recorder events.EventRecorder, about, related runtime.Object, reason, action, text string) {
	kind := corev1.EventTypeWarning // so that a reason without a row is not overlooked
	if row, known := v1alpha1.FindEventReason(reason); known && !row.Warning {
		kind = corev1.EventTypeNormal
	}
	recorder.Eventf(about, related, kind, reason, action, "%s", bounded.Text(text, bounded.Message))
}
