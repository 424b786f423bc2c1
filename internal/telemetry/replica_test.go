package telemetry

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// sink keeps the last Event.
type sink struct {
	events.EventSink

	last *eventsv1.Event
	err  error
}

func (s *sink) Create(_ context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	s.last = event
	return event, s.err
}

func (s *sink) Update(_ context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	s.last = event
	return event, s.err
}

// client-go would log the rejection as an error. What it does itself after an error stays: it
// creates an Event that has expired, and writes again where there is no answer.
func TestRejectedEventsAreNoErrors(t *testing.T) {
	of := schema.GroupResource{Resource: "events"}
	for name, c := range map[string]struct {
		err               error
		onCreate, onPatch bool // is an error
	}{
		"forbidden":      {apierrors.NewForbidden(of, "e", errors.New("the namespace is being deleted")), false, false},
		"not found":      {apierrors.NewNotFound(of, "e"), false, true},
		"already exists": {apierrors.NewAlreadyExists(of, "e"), true, false},
		"no answer":      {io.EOF, true, true},
	} {
		log := &ktesting.BufferTL{}
		ctx := klog.NewContext(t.Context(), ktesting.NewLogger(log, ktesting.NewConfig(ktesting.Verbosity(2))))
		rejecting := ByReplica(&sink{err: c.err}, "fleet-0")
		_, onCreate := rejecting.Create(ctx, &eventsv1.Event{Reason: "Created"})
		_, onPatch := rejecting.Patch(ctx, &eventsv1.Event{Reason: "Created"}, nil)
		if (onCreate != nil) != c.onCreate || (onPatch != nil) != c.onPatch {
			t.Errorf("%s: create %v, patch %v; want errors %t and %t", name, onCreate, onPatch, c.onCreate, c.onPatch)
		}
		if rejected := !c.onCreate || !c.onPatch; strings.Contains(log.String(), "API server rejected Event") != rejected {
			t.Errorf("%s: the log is %s", name, log)
		}
	}
}

// The fleet has no right to patch Events.
func TestEventsOfASeriesAreUpdated(t *testing.T) {
	kept, event := &sink{}, &eventsv1.Event{ReportingController: "machine-controller", Series: &eventsv1.EventSeries{Count: 2}}
	event.ResourceVersion, event.UID = "7", "u"
	if _, err := ByReplica(kept, "fleet-0").Patch(t.Context(), event, []byte(`{"series":{}}`)); err != nil {
		t.Fatal(err)
	}
	if got := kept.last; got.Series.Count != 2 || got.ReportingInstance != "machine-controller-fleet-0" || got.ResourceVersion != "" ||
		got.UID != "" {
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

// TestEventsInANamespaceInDeletionAreLoggedOnceForIt: each of them is rejected, and has its own
// line already.
func TestEventsInANamespaceInDeletionAreLoggedOnceForIt(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "e", errors.New("it is being terminated"))
	forbidden.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	log := &ktesting.BufferTL{}
	ctx := klog.NewContext(t.Context(), ktesting.NewLogger(log, ktesting.NewConfig(ktesting.Verbosity(2))))
	rejecting, born := ByReplica(&sink{err: forbidden}, "fleet-0"), time.Unix(0, 0)
	for i := range 33 {
		for _, namespace := range []string{"a", "b"} {
			event := &eventsv1.Event{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, EventTime: metav1.NewMicroTime(born.Add(time.Duration(i) * time.Minute)),
			}
			if _, err := rejecting.Create(ctx, event); err != nil {
				t.Fatal(err)
			}
		}
	}
	if lines := strings.Count(log.String(), "\n"); lines != 2 || !strings.Contains(log.String(), `namespace="b"`) {
		t.Errorf("%d lines, want one for each namespace:\n%s", lines, log)
	}
}
