package traces

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Service is the name of the fleet in traces.
const Service = "machine-controller-fleet"

// Bounds on what is read.
const (
	// mostTraces of one search.
	mostTraces = 5000
	// mostLinks is how many traces are read because a span links to them.
	mostLinks = 500
)

// Ref identifies a span.
type Ref struct{ Trace, Span string }

// Span is a span with those below it.
type Span struct {
	Ref

	Name  string
	Start time.Time
	Took  time.Duration
	// Tags are attributes, as text.
	Tags map[string]string
	// Links are the spans that it refers to without being a part of them.
	Links []Ref
	// Below are the spans that are parts of it, by their start.
	Below []*Span

	parent string
}

// Failed reports whether the span is marked as failed.
func (s *Span) Failed() bool { return s.Tags["otel.status_code"] == "ERROR" }

// all returns the span and those below it.
func (s *Span) all() []*Span {
	spans := []*Span{s}
	for _, below := range s.Below {
		spans = append(spans, below.all()...)
	}
	return spans
}

// Jaeger is the query API of a Jaeger.
type Jaeger struct {
	// URL is its address: http://127.0.0.1:16686.
	URL string
}

// SearchLink returns the address of the page with all traces that name a machine.
func (j Jaeger) SearchLink(machine string) string {
	return j.URL + "/search?" + url.Values{"service": {Service}, "tags": {tags("machine.name", machine)}, "limit": {"1500"}, "lookback": {"2d"}}.Encode()
}

// TraceLink returns the address of the page of a trace.
func (j Jaeger) TraceLink(id string) string { return j.URL + "/trace/" + id }

// Life returns the life of a machine, called namespace/name, or name if no other namespace has one of that name. Errors: Jaeger does not
// answer, or has no pass of such a machine.
func (j Jaeger) Life(ctx context.Context, machine string) (Life, error) {
	name := machine[strings.LastIndexByte(machine, '/')+1:]
	found, err := j.search(ctx, url.Values{"tags": {tags("machine.name", name)}})
	if err != nil {
		return Life{}, err
	}
	if found, err = j.follow(ctx, found); err != nil {
		return Life{}, err
	}
	released, err := j.search(ctx, url.Values{"operation": {releaseSlot}})
	if err != nil {
		return Life{}, err
	}
	return LifeOf(machine, append(found, released...))
}

// follow adds the traces that spans link to: those of the passes and arrivals that a pass follows from, and what these follow from.
func (j Jaeger) follow(ctx context.Context, found []*Span) ([]*Span, error) {
	known := map[string]bool{}
	for _, first := range found {
		known[first.Trace] = true
	}
	for i := 0; i < len(found); i++ {
		for _, link := range found[i].Links {
			if known[link.Trace] || len(known) > mostTraces+mostLinks {
				continue
			}
			known[link.Trace] = true
			linked, err := j.trace(ctx, link.Trace)
			if err != nil {
				return nil, err
			}
			found = append(found, linked...)
		}
	}
	return found, nil
}

// Trace returns the first spans of a trace; none when Jaeger does not have it.
func (j Jaeger) trace(ctx context.Context, id string) ([]*Span, error) {
	return j.get(ctx, "/api/traces/"+url.PathEscape(id))
}

// search returns the first spans of the traces of the fleet that a query selects.
func (j Jaeger) search(ctx context.Context, query url.Values) ([]*Span, error) {
	query.Set("service", Service)
	query.Set("limit", strconv.Itoa(mostTraces))
	return j.get(ctx, "/api/traces?"+query.Encode())
}

func (j Jaeger) get(ctx context.Context, path string) ([]*Span, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, j.URL+path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("query Jaeger: %w", err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("query Jaeger: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusNotFound {
		return nil, nil
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("query Jaeger: expected 200 for %s, got %s", path, answer.Status)
	}
	var page page
	if err := json.NewDecoder(answer.Body).Decode(&page); err != nil {
		return nil, fmt.Errorf("query Jaeger: read the answer to %s: %w", path, err)
	}
	return page.spans(), nil
}

func tags(key, value string) string {
	text, _ := json.Marshal(map[string]string{key: value}) // strings can always be encoded
	return string(text)
}

// page is an answer of the query API.
type page struct {
	Data []struct{ Spans []wireSpan }
}

// wireSpan is a span in it. Times are in microseconds.
type wireSpan struct {
	TraceID, SpanID, OperationName string
	References                     []struct{ RefType, TraceID, SpanID string }
	StartTime, Duration            int64
	Tags                           []struct {
		Key   string
		Value any
	}
}

// spans returns the first span of each trace, with those below it. Spans whose parent is missing come first, too.
func (p page) spans() (first []*Span) {
	for _, trace := range p.Data {
		known, all := map[string]*Span{}, []*Span{}
		for _, wire := range trace.Spans {
			s := wire.span()
			known[s.Span] = s
			all = append(all, s)
		}
		slices.SortStableFunc(all, byStart)
		for _, s := range all {
			if parent := known[s.parent]; parent != nil {
				parent.Below = append(parent.Below, s)
			} else {
				first = append(first, s)
			}
		}
	}
	return first
}

func byStart(a, b *Span) int { return a.Start.Compare(b.Start) }

func (w wireSpan) span() *Span {
	s := &Span{
		Ref: Ref{w.TraceID, w.SpanID}, Name: w.OperationName, Tags: map[string]string{},
		Start: time.UnixMicro(w.StartTime).UTC(), Took: time.Duration(w.Duration) * time.Microsecond,
	}
	for _, r := range w.References {
		if r.RefType == "CHILD_OF" && r.TraceID == w.TraceID {
			s.parent = r.SpanID
		} else {
			s.Links = append(s.Links, Ref{r.TraceID, r.SpanID})
		}
	}
	for _, t := range w.Tags {
		s.Tags[t.Key] = text(t.Value)
	}
	return s
}

// text returns a value of JSON as text, numbers without an exponent.
func text(value any) string {
	if number, ok := value.(float64); ok {
		return strconv.FormatFloat(number, 'f', -1, 64)
	}
	return fmt.Sprint(value)
}
