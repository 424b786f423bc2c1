package telemetry

import (
	"context"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/tools/events"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
)

// mostReportingInstance is how many bytes the API server accepts in the field reportingInstance of an Event.
const mostReportingInstance = 128

// replicaSink is an EventSink whose Events name a replica, and which needs no right to patch Events.
type replicaSink struct {
	events.EventSink

	replica string
}

// ByReplica returns a sink for the Events of a replica: reportingInstance names it. client-go uses the name of the host, which
// replicas can share.
func ByReplica(sink events.EventSink, replica string) events.EventSink {
	return replicaSink{EventSink: sink, replica: replica}
}

// Create creates an Event.
func (s replicaSink) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	return s.EventSink.Create(ctx, s.named(event))
}

// Patch updates an Event whose series has grown. The API server's error for a patch that cannot be applied has the object's content, so
// that the right to patch is a right to read. An Event that has expired is created again.
func (s replicaSink) Patch(ctx context.Context, event *eventsv1.Event, _ []byte) (*eventsv1.Event, error) {
	event = s.named(event)
	event.ResourceVersion, event.UID = "", "" // also of one that has expired
	return s.Update(ctx, event)
}

func (s replicaSink) named(event *eventsv1.Event) *eventsv1.Event {
	event = event.DeepCopy() // the broadcaster keeps it
	event.ReportingInstance = bounded.Text(event.ReportingController+"-"+s.replica, mostReportingInstance)
	return event
}
