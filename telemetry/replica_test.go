package telemetry

import (
	"context"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/tools/events"
)

// sink keeps the last Event.
type sink struct {
	events.EventSink

	last *eventsv1.Event
}

func (s *sink) Create(_ context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	s.last = event
	return event, nil
}

func (s *sink) Update(_ context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	s.last = event
	return event, nil
}

// The fleet has no right to patch Events.
func TestEventsOfASeriesAreUpdated(t *testing.T) {
	kept, event := &sink{}, &eventsv1.Event{ReportingController: "machine-controller", Series: &eventsv1.EventSeries{Count: 2}}
	event.ResourceVersion, event.UID = "7", "u"
	if _, err := ByReplica(kept, "fleet-0").Patch(t.Context(), event, []byte(`{"series":{}}`)); err != nil {
		t.Fatal(err)
	}
	if got := kept.last; got.Series.Count != 2 || got.ReportingInstance != "machine-controller-fleet-0" || got.ResourceVersion != "" || got.UID != "" {
		t.Errorf("updated: %+v", got)
	}
}

func TestEventsNameTheirReplica(t *testing.T) {
	for replica, want := range map[string]string{
		"fleet-0":                "machine-controller-fleet-0",
		strings.Repeat("x", 200): "machine-controller-" + strings.Repeat("x", 106) + "…",
	} {
		kept, event := &sink{}, &eventsv1.Event{ReportingController: "machine-controller", ReportingInstance: "machine-controller-host"}
		if _, err := ByReplica(kept, replica).Create(t.Context(), event); err != nil {
			t.Fatal(err)
		}
		if got := kept.last.ReportingInstance; got != want {
			t.Errorf("reportingInstance %q, want %q", got, want)
		}
		if event.ReportingInstance != "machine-controller-host" {
			t.Error("the broadcaster's own Event has changed")
		}
	}
}
