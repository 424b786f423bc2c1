package session

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// Names of the spans of slots that move. The replica that gets a slot records the first or the
// second, the one that hands it over the third.
const (
	handOverSpan = "hand-over"
	takeOverSpan = "take-over"
	releaseSpan  = "release-slot"
)

// stage is a part of a move, from the end of the one before it to its own.
type stage struct {
	name string
	end  member.Moment // zero when it was not seen; the next stage then includes it
}

// traceStages records the span of a move that has ended, with a span for each stage below it, and
// returns its W3C traceparent.
func traceStages(
	ctx context.Context, tracer trace.Tracer, name string, begun, now member.Moment, stages []stage, attributes ...attribute.KeyValue,
) (traceparent string) {
	at := func(m member.Moment) trace.SpanEventOption { return trace.WithTimestamp(now.Wall.Add(-now.Since(m))) }
	ctx, span := tracer.Start(ctx, name, trace.WithNewRoot(), at(begun), trace.WithAttributes(attributes...))
	defer span.End(at(now))
	last := begun
	for _, s := range stages {
		if s.end.IsZero() || s.end.Since(last) < 0 {
			continue
		}
		_, part := telemetry.Step(ctx, name+" "+s.name, at(last))
		part.End(at(s.end))
		last = s.end
	}
	return telemetry.Traceparent(ctx)
}

// departures traces how slots leave this replica. No decision depends on it.
type departures struct {
	settings protocol.Settings
	tracer   trace.Tracer
	slots    map[int]departure // slots that are being handed over
}

// departure is a slot that is being handed over.
type departure struct{ since, idle member.Moment }

func newDepartures(s protocol.Settings, tracer trace.Tracer) *departures {
	return &departures{settings: s, tracer: tracer, slots: map[int]departure{}}
}

// stopped begins the departure of a slot.
func (d *departures) stopped(slot int, now member.Moment) {
	if _, known := d.slots[slot]; !known {
		d.slots[slot] = departure{since: now}
	}
}

// idle records that nothing of a slot is in flight any more.
func (d *departures) idle(slot int, now member.Moment) {
	if is, known := d.slots[slot]; known {
		is.idle = now
		d.slots[slot] = is
	}
}

// has reports whether a slot is being handed over.
func (d *departures) has(slot int) bool {
	_, is := d.slots[slot]
	return is
}

// resumed ends a departure without a hand-over.
func (d *departures) resumed(slot int) { delete(d.slots, slot) }

// lost ends the departure of a slot, which was held under the epoch.
func (d *departures) lost(ctx context.Context, slot int, epoch int64, now member.Moment) {
	is, known := d.slots[slot]
	if !known {
		return
	}
	delete(d.slots, slot)
	traceStages(ctx, d.tracer, releaseSpan, is.since, now, []stage{{"finish", is.idle}, {"write", now}},
		telemetry.ReplicaKey.String(d.settings.Replica), telemetry.SessionKey.String(d.settings.Session),
		telemetry.SlotKey.Int(slot), telemetry.EpochKey.Int64(epoch))
}
