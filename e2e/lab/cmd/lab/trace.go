package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/launcher"
)

const (
	// tracedService is the name of the fleet in traces.
	tracedService = "machine-controller-fleet"
	// maxTraces bounds what is read of one machine.
	maxTraces = "5000"
	// passOfMachine is the name of the span of a machine's pass.
	passOfMachine = "reconcile machine"
	// spanInterval is how often Jaeger is asked for spans that were not sent yet; traceTimeout bounds
	// that.
	spanInterval = time.Second
	traceTimeout = 2 * time.Minute
)

// trace is a trace as Jaeger's query API returns it.
type trace struct {
	TraceID string
	Spans   []span // the first one begins first
}

// span is a span of it. Times are in microseconds.
type span struct {
	TraceID, SpanID, OperationName string
	References                     []reference
	StartTime, Duration            int64
	Tags                           []struct {
		Key   string
		Value any
	}
}

// reference is one from a span to another one.
type reference struct{ RefType, TraceID, SpanID string }

func (s span) tag(key string) string {
	for _, t := range s.Tags {
		if number, ok := t.Value.(float64); ok && t.Key == key {
			return strconv.FormatFloat(number, 'f', -1, 64)
		}
		if t.Key == key {
			return fmt.Sprint(t.Value)
		}
	}
	return ""
}

// trace prints the passes of a machine and those that they follow from, and where to see them in
// Jaeger's own pages. With an epoch it waits until an owner of the machine's slot in that epoch or
// a later one has sent a pass.
func (c *invocation) trace(ctx context.Context, epoch int64) error {
	jaeger, err := launcher.Jaeger(c.folder())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, traceTimeout)
	defer cancel()
	machine := c.args[0]
	if isTraceID.MatchString(machine) {
		return c.printTrace(ctx, jaeger, machine)
	}
	life, err := lifeOf(ctx, jaeger, machine, epoch)
	for err != nil && epoch > 0 && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(spanInterval):
			life, err = lifeOf(ctx, jaeger, machine, epoch)
		}
	}
	if err != nil {
		return err
	}
	printLife(c.out, life)
	fmt.Fprintf(c.out, "\nIn Jaeger: %s/search?%s\n", jaeger, named(machine).Encode())
	return nil
}

// isTraceID matches what Events and receipts have of a trace.
var isTraceID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// printTrace prints the trace with an ID.
func (c *invocation) printTrace(ctx context.Context, jaeger, id string) error {
	found, err := read(ctx, jaeger+"/api/traces/"+id)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("find trace %s: Jaeger has none of this ID", id)
	}
	if err != nil {
		return err
	}
	printLife(c.out, found)
	fmt.Fprintf(c.out, "\nIn Jaeger: %s/trace/%s\n", jaeger, id)
	return nil
}

// named is the query for the traces with spans about machines of a name, given as namespace/name or
// name.
func named(machine string) url.Values {
	tags, _ := json.Marshal(map[string]string{"mcf.machine.name": machine[strings.LastIndexByte(machine, '/')+1:]}) // always possible
	return url.Values{"service": {tracedService}, "tags": {string(tags)}, "limit": {maxTraces}, "lookback": {"2d"}}
}

// lifeOf returns the traces about a machine and those to which their spans link, by their start.
// Errors: Jaeger does not answer; it has no pass of such a machine, or those of several; no pass is
// of an owner of this epoch or of a later one.
func lifeOf(ctx context.Context, jaeger, machine string, epoch int64) ([]trace, error) {
	found, err := read(ctx, jaeger+"/api/traces?"+named(machine).Encode())
	if err != nil {
		return nil, err
	}
	last := map[string]int64{} // epochs of machines of that name
	life := slices.DeleteFunc(found, func(t trace) bool { return !slices.ContainsFunc(t.Spans, isAbout(machine)) })
	for _, t := range life {
		for _, pass := range t.Spans {
			if pass.OperationName == passOfMachine && isAbout(machine)(pass) {
				of, _ := strconv.ParseInt(pass.tag("mcf.epoch"), 10, 64)
				name := pass.tag("k8s.namespace.name") + "/" + pass.tag("mcf.machine.name")
				last[name] = max(last[name], of)
			}
		}
	}
	if len(life) == 0 || len(last) == 0 && epoch > 0 {
		return nil, fmt.Errorf("find the traces of machine %s: Jaeger has none: there is no machine of this name, it is not sampled, "+
			"or its spans were not sent yet, which takes a second", machine)
	}
	for name, reached := range last {
		if len(last) > 1 {
			return nil, fmt.Errorf("find the passes of machine %s: there are several, such as %s; give the namespace", machine, name)
		}
		if reached < epoch {
			return nil,
				fmt.Errorf("find the passes of machine %s: expected some in epoch %d or a later one, the last are in epoch %d", name, epoch, reached)
		}
	}
	return follow(ctx, jaeger, life)
}

// isAbout reports whether a span is about a machine, given as namespace/name or name.
func isAbout(machine string) func(span) bool {
	return func(s span) bool {
		name := s.tag("mcf.machine.name")
		return machine == name || machine == s.tag("k8s.namespace.name")+"/"+name
	}
}

// follow adds the traces to which spans link: those of passes and hand-overs that a pass follows
// from, and what these follow from.
func follow(ctx context.Context, jaeger string, life []trace) ([]trace, error) {
	known := map[string]bool{}
	for _, t := range life {
		known[t.TraceID] = true
	}
	for i := 0; i < len(life); i++ { // it grows
		for _, s := range life[i].Spans {
			for _, r := range s.References {
				if known[r.TraceID] {
					continue
				}
				known[r.TraceID] = true
				linked, err := read(ctx, jaeger+"/api/traces/"+url.PathEscape(r.TraceID))
				if err != nil {
					return nil, err
				}
				life = append(life, linked...)
			}
		}
	}
	slices.SortStableFunc(life, func(a, b trace) int { return cmp.Compare(a.Spans[0].StartTime, b.Spans[0].StartTime) })
	return life, nil
}

// read returns the traces of an answer; none when Jaeger does not have them.
func read(ctx context.Context, address string) ([]trace, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("query Jaeger: %w", err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("query Jaeger: %w", err)
	}
	defer answer.Body.Close()
	var page struct{ Data []trace }
	switch answer.StatusCode {
	case http.StatusNotFound:
		return nil, nil
	case http.StatusOK:
		err = json.NewDecoder(answer.Body).Decode(&page)
	default:
		err = fmt.Errorf("expected status 200, got %s", answer.Status)
	}
	if err != nil {
		return nil, fmt.Errorf("query Jaeger at %s: %w", address, err)
	}
	traces := slices.DeleteFunc(page.Data, func(t trace) bool { return len(t.Spans) == 0 })
	for _, t := range traces {
		slices.SortStableFunc(t.Spans, func(a, b span) int { return cmp.Compare(a.StartTime, b.StartTime) })
	}
	return traces, nil
}

// printLife prints each trace as a tree.
func printLife(out io.Writer, life []trace) {
	for _, t := range life {
		fmt.Fprintf(out, "+%.3f s  trace %s\n", float64(t.Spans[0].StartTime-life[0].Spans[0].StartTime)/1e6, t.TraceID)
		printBelow(out, t, span{}, "  ")
	}
}

// printBelow prints the spans of a trace that are parts of another one; with the zero span, those
// that are parts of none. Where the owner differs from that of the other one, it is printed, too.
func printBelow(out io.Writer, t trace, parent span, indent string) {
	for _, s := range t.Spans {
		if s.parentIn(t) != parent.SpanID {
			continue
		}
		fmt.Fprint(out, indent, s.OperationName)
		for _, key := range []string{
			"mcf.machinedeployment.name", "mcf.machineset.name", "mcf.from", "mcf.reason.text", "mcf.api.server", "http.response.status_code",
			"mcf.provider", "mcf.driver.code", "mcf.driver.retry_after_seconds", "otel.status_description",
		} {
			switch value := s.tag(key); {
			case value == "":
			case key == "mcf.reason.text":
				fmt.Fprint(out, ": ", value)
			default:
				fmt.Fprint(out, "  ", value)
			}
		}
		fmt.Fprint(out, "  ", time.Duration(s.Duration)*time.Microsecond)
		if session := s.tag("mcf.session"); session != "" && session != parent.tag("mcf.session") {
			fmt.Fprintf(out, "  (%s, slot %s, epoch %s)", session, s.tag("mcf.slot"), s.tag("mcf.epoch"))
		}
		fmt.Fprintln(out)
		printBelow(out, t, s, indent+"  ")
	}
}

// parentIn returns the ID of the span of a trace that a span is a part of; "" for none. What a
// process has left that was killed in a pass is a part of the stage.
func (s span) parentIn(t trace) string {
	for _, r := range s.References {
		switch {
		case r.RefType != "CHILD_OF":
		case slices.ContainsFunc(t.Spans, func(other span) bool { return other.SpanID == r.SpanID }):
			return r.SpanID
		default:
			return t.root().SpanID
		}
	}
	return ""
}

// root returns the first span that is a part of none; the zero span if there is none.
func (t trace) root() span {
	for _, s := range t.Spans {
		if !slices.ContainsFunc(s.References, func(r reference) bool { return r.RefType == "CHILD_OF" }) {
			return s
		}
	}
	return span{}
}
