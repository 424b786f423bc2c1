package telemetry

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pacing"
)

// mostReportingInstance is how many bytes the API server accepts in the field reportingInstance of
// an Event.
const mostReportingInstance = 128

// replicaSink is an EventSink whose Events name a replica, and which needs no right to patch
// Events.
type replicaSink struct {
	events.EventSink

	replica string
	ending  *pacing.Rates[string] // how often it is logged that a namespace accepts no Events, because it is being deleted
}

// endingInterval is how often that is logged: a namespace has mostly been deleted by then.
const endingInterval = time.Hour

// ByReplica returns a sink for the Events of a replica: reportingInstance names it. client-go uses
// the name of the host, which replicas can share.
func ByReplica(sink events.EventSink, replica string) events.EventSink {
	return replicaSink{EventSink: sink, replica: replica, ending: pacing.NewRates[string](1, endingInterval)}
}

// Create creates an Event.
func (s replicaSink) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	created, err := s.EventSink.Create(ctx, s.named(event))
	if apierrors.IsAlreadyExists(err) { // the broadcaster decides
		return created, err
	}
	return s.answered(ctx, event, created, err)
}

// answered returns the answer to the write of an Event. One that the API server has rejected is not
// written again, and client-go would report it as an error: it is none of the fleet. In a namespace
// that is being deleted each is rejected: that is logged once, because the log has a line of each
// Event anyway.
func (s replicaSink) answered(ctx context.Context, event, written *eventsv1.Event, err error) (*eventsv1.Event, error) {
	if _, rejected := errors.AsType[*apierrors.StatusError](err); !rejected {
		return written, err
	}
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		namespace := event.Namespace
		if now := event.EventTime.Time; s.ending.Wait(namespace, now) == 0 {
			s.ending.Count(namespace, now)
			klog.FromContext(ctx).Info("Namespace is being deleted and accepts no Events; the log has them", "namespace", namespace)
		}
		return event, nil
	}
	klog.FromContext(ctx).V(2).Info("API server rejected Event", "reason", event.Reason, "kind", event.Regarding.Kind,
		"name", event.Regarding.Name,
		KeyNamespace, event.Regarding.Namespace, "err", err)
	return event, nil
}

// Patch updates an Event whose series has grown. The API server's error for a patch that cannot be
// applied has the object's content, so that the right to patch is a right to read. An Event that
// has expired is created again.
func (s replicaSink) Patch(ctx context.Context, event *eventsv1.Event, _ []byte) (*eventsv1.Event, error) {
	event = s.named(event)
	event.ResourceVersion, event.UID = "", "" // also of one that has expired
	updated, err := s.Update(ctx, event)
	if apierrors.IsNotFound(err) { // the broadcaster creates it
		return updated, err
	}
	return s.answered(ctx, event, updated, err)
}

func (s replicaSink) named(event *eventsv1.Event) *eventsv1.Event {
	event = event.DeepCopy() // the broadcaster keeps it
	event.ReportingInstance = bounded.Text(event.ReportingController+"-"+s.replica, mostReportingInstance)
	return event
}
