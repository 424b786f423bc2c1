package telemetry

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pacing"
)

// damped is a recorder that drops Events when too many have the same reason on the same object, or
// are in the same namespace.
type damped struct {
	events.EventRecorder

	clock      clock.PassiveClock
	rates      *pacing.Rates[eventKey]
	steps      *pacing.Rates[eventKey] // of v1alpha1.StepEventReasons
	namespaces *pacing.Rates[string]
	log        klog.Logger // discards, until WithLogger sets it
}

var _ events.EventRecorderLogger = (*damped)(nil)

// eventKey is the key by which Events are counted.
type eventKey struct {
	uid    types.UID
	reason string
}

// Damped returns a recorder that records, of each reason on each object, pacing.EventBurst Events
// at once and then one in pacing.EventInterval, and as many lines of the log, of which those of
// warnings have the severity of errors; see Emit. Of v1alpha1.StepEventReasons it records
// pacing.StepEventBurst at once. Of all in a namespace it records pacing.NamespaceEventBurst at
// once and then one in pacing.NamespaceEventInterval. What is dropped is visible in the status of
// the object, and the next Event describes the state at its own time.
func Damped(recorder events.EventRecorder, c clock.PassiveClock) events.EventRecorder {
	return &damped{
		EventRecorder: recorder, clock: c, rates: pacing.NewRates[eventKey](pacing.EventBurst, pacing.EventInterval),
		steps:      pacing.NewRates[eventKey](pacing.StepEventBurst, pacing.EventInterval),
		namespaces: pacing.NewRates[string](pacing.NamespaceEventBurst, pacing.NamespaceEventInterval),
	}
}

// WithLogger returns the recorder with the log to which it writes a line for each Event.
func (d *damped) WithLogger(log klog.Logger) events.EventRecorderLogger {
	with := *d
	with.log = log
	return &with
}

// Eventf records an Event, unless there were too many.
func (d *damped) Eventf(about, related runtime.Object, eventtype, reason, action, note string, args ...any) {
	uid, namespace := identify(about)
	key, now := eventKey{uid, reason}, d.clock.Now()
	rates := d.rates
	if slices.Contains(v1alpha1.StepEventReasons(), reason) {
		rates = d.steps
	}
	if rates.Wait(key, now) > 0 || d.namespaces.Wait(namespace, now) > 0 {
		return
	}
	rates.Count(key, now)
	d.namespaces.Count(namespace, now)
	if eventtype == corev1.EventTypeWarning {
		d.log.Error(nil, "Emitted Event", "reason", reason, "message", fmt.Sprintf(note, args...))
	} else {
		d.log.Info("Emitted Event", "reason", reason, "message", fmt.Sprintf(note, args...))
	}
	d.EventRecorder.Eventf(about, related, eventtype, reason, action, note, args...)
}

func identify(about runtime.Object) (uid types.UID, namespace string) {
	switch o := about.(type) {
	case *corev1.ObjectReference:
		return o.UID, o.Namespace
	case metav1.Object:
		return o.GetUID(), o.GetNamespace()
	}
	return "", ""
}
