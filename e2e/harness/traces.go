package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// Span is a span of the fleet, as Jaeger returns it.
type Span struct {
	ID string
	// Trace is the ID of the trace that it is in.
	Trace string
	// Name of the span.
	Name string
	// Links are the spans that it refers to without being a part of them, as <trace>/<span>.
	Links []string
	// Tags are attributes, as text.
	Tags map[string]string
}

// maxTraces bounds the answer to one query.
const maxTraces = "10000"

// Spans returns the spans of a lab with tracing that have the name and the tags. Replicas send
// theirs each second.
func (l *Lab) Spans(ctx context.Context, name string, tags map[string]string) ([]Span, error) {
	desired, err := json.Marshal(tags)
	if err != nil {
		return nil, fmt.Errorf("encode the tags: %w", err)
	}
	// The answer has the whole traces of the requested spans.
	all, err := l.spans(ctx, url.Values{"operation": {name}, "tags": {string(desired)}})
	return slices.DeleteFunc(all, func(s Span) bool { return s.Name != name || !s.has(tags) }), err
}

// spans returns all spans of the traces of the fleet that a query selects.
func (l *Lab) spans(ctx context.Context, query url.Values) (spans []Span, err error) {
	query.Set("service", telemetry.ServiceName)
	query.Set("limit", maxTraces)
	var answer struct {
		Data []struct{ Spans []jaegerSpan }
	}
	if err := send(ctx, http.MethodGet, l.Endpoint("jaeger")+"/api/traces?"+query.Encode(), nil, &answer); err != nil {
		return nil, err
	}
	for _, trace := range answer.Data {
		for _, found := range trace.Spans {
			spans = append(spans, found.span())
		}
	}
	return spans, nil
}

// jaegerSpan is a span as Jaeger's query API has it.
type jaegerSpan struct {
	TraceID, SpanID, OperationName string
	References                     []struct{ RefType, TraceID, SpanID string }
	Tags                           []struct {
		Key   string
		Value any
	}
}

func (j jaegerSpan) span() Span {
	s := Span{ID: j.SpanID, Trace: j.TraceID, Name: j.OperationName, Tags: map[string]string{}}
	for _, r := range j.References {
		if r.RefType != "CHILD_OF" {
			s.Links = append(s.Links, r.TraceID+"/"+r.SpanID)
		}
	}
	for _, t := range j.Tags {
		s.Tags[t.Key] = fmt.Sprint(t.Value)
	}
	return s
}

// SameTrace reports whether another span is in the trace of this one.
func (s Span) SameTrace(other Span) bool { return s.Trace == other.Trace }

func (s Span) has(tags map[string]string) bool {
	for key, value := range tags {
		if s.Tags[key] != value {
			return false
		}
	}
	return true
}

// Trace returns what `lab trace` prints about a machine whose slot is in an epoch or a later one.
func (l *Lab) Trace(ctx context.Context, machine string, epoch int64) (string, error) {
	var printed strings.Builder
	err := run(ctx, &printed, "trace", machine, "--dir", l.Dir, fmt.Sprintf("--until-epoch=%d", epoch))
	return printed.String(), err
}
