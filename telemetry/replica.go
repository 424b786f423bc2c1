package telemetry

import (
	"context"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/tools/events"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
)

// mostReportingInstance is how many bytes the API server accepts in the field reportingInstance of an Event.
const mostReportingInstance = 128

// replicaSink is an EventSink whose Events name a replica.
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
	event = event.DeepCopy() // the broadcaster keeps it
	event.ReportingInstance = bounded.Text(event.ReportingController+"-"+s.replica, mostReportingInstance)
	return s.EventSink.Create(ctx, event)
}
