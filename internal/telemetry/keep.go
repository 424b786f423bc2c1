package telemetry

import (
	"context"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Bounds on what is buffered. A pass has some ten spans and ends within seconds; what a pass has
// beyond the bound is dropped, with the first spans kept. Open spans are as many as there are
// workers, and what they have below. Keys with passes that were not exported are counted up to the
// last bound.
const (
	mostSpansOfPass = 200
	mostOpenSpans   = 40000
	mostIdleKeys    = 20000
)

// passes is a processor of spans. It buffers the spans of a pass, and drops them if the pass has
// sent nothing and has not failed: it changed nothing. The next pass of the key that is exported
// has their number. All others are passed on.
type passes struct {
	next sdktrace.SpanProcessor

	mu   sync.Mutex
	open map[trace.SpanID]*buffered // by the ID of each span that has begun and not ended
	idle map[string]int             // passes that were not exported since one was, by controller and key
}

// buffered are the spans of a pass that have ended, and what is known of it.
type buffered struct {
	first  trace.SpanID
	spans  []sdktrace.ReadOnlySpan
	effect bool // it has sent a request, or failed
}

var _ sdktrace.SpanProcessor = (*passes)(nil)

func newPasses(next sdktrace.SpanProcessor) *passes {
	return &passes{next: next, open: map[trace.SpanID]*buffered{}, idle: map[string]int{}}
}

// OnStart begins to buffer a pass with its first span.
func (p *passes) OnStart(parent context.Context, span sdktrace.ReadWriteSpan) {
	p.next.OnStart(parent, span)
	p.mu.Lock()
	defer p.mu.Unlock()
	id := span.SpanContext().SpanID()
	b := p.open[span.Parent().SpanID()]
	if b == nil {
		b = &buffered{first: id}
	}
	if len(p.open) < mostOpenSpans {
		p.open[id] = b
	}
	b.effect = b.effect || span.SpanKind() == trace.SpanKindClient
}

// OnEnd passes on what is exported.
func (p *passes) OnEnd(span sdktrace.ReadOnlySpan) {
	for _, exported := range p.add(span) {
		p.next.OnEnd(exported)
	}
}

// add buffers a span, and returns the spans that are exported with it.
func (p *passes) add(span sdktrace.ReadOnlySpan) (exported []sdktrace.ReadOnlySpan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := span.SpanContext().SpanID()
	b, known := p.open[id]
	delete(p.open, id)
	if !known { // there were too many
		b = &buffered{first: id, effect: true}
	}
	ends := id == b.first
	b.effect = b.effect || span.Status().Code == codes.Error
	if ends || len(b.spans) < mostSpansOfPass {
		b.spans = append(b.spans, span)
	}
	key, isPass := passOf(span)
	switch {
	case ends && isPass && b.effect:
		b.spans[len(b.spans)-1] = counted{span, p.idle[key]}
		delete(p.idle, key)
		return b.take()
	case b.effect || ends && !isPass:
		return b.take() // it does not wait for the end of the pass, which a process may not live to see
	case ends && len(p.idle) < mostIdleKeys:
		p.idle[key]++
	}
	return nil
}

// passOf returns controller and key of a pass; is is false for the first span of anything else.
func passOf(span sdktrace.ReadOnlySpan) (key string, is bool) {
	if !strings.HasPrefix(span.Name(), passPrefix) {
		return "", false
	}
	for _, a := range span.Attributes() {
		if a.Key == keyKey {
			key = a.Value.AsString()
		}
	}
	return span.Name() + " " + key, true
}

// take returns the buffered spans.
func (b *buffered) take() []sdktrace.ReadOnlySpan {
	spans := b.spans
	b.spans = nil
	return spans
}

// Shutdown drops what is buffered, and stops the processor below.
func (p *passes) Shutdown(ctx context.Context) error {
	p.mu.Lock()
	clear(p.open)
	p.mu.Unlock()
	return p.next.Shutdown(ctx)
}

// ForceFlush sends what was passed on.
func (p *passes) ForceFlush(ctx context.Context) error { return p.next.ForceFlush(ctx) }

// counted is the first span of a pass, with the number of passes of its key before it that were not
// exported.
type counted struct {
	sdktrace.ReadOnlySpan

	before int
}

// Attributes returns the attributes of the span and that number, if it is not 0.
func (c counted) Attributes() []attribute.KeyValue {
	if c.before == 0 {
		return c.ReadOnlySpan.Attributes()
	}
	return append(c.ReadOnlySpan.Attributes(), idlePassesKey.Int(c.before))
}
