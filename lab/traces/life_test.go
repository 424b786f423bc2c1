package traces

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// span makes a span that begins so many milliseconds after the first and takes so many. Tags are key=value, links trace/span.
func span(id string, after, took int, name string, tagsAndLinks []string, below ...*Span) *Span {
	trace, own, _ := strings.Cut(id, "/")
	s := &Span{
		Ref: Ref{trace, own}, Name: name, Tags: map[string]string{}, Below: below,
		Start: began.Add(time.Duration(after) * time.Millisecond), Took: time.Duration(took) * time.Millisecond,
	}
	for _, text := range tagsAndLinks {
		if key, value, isTag := strings.Cut(text, "="); isTag {
			s.Tags[key] = value
		} else {
			linked, to, _ := strings.Cut(text, "/")
			s.Links = append(s.Links, Ref{linked, to})
		}
	}
	return s
}

// by returns the tags of an owner, with others.
func by(replica, epoch string, others ...string) []string {
	return append([]string{"replica=" + replica, "session=" + replica + "_abcde", "slot=47", "epoch=" + epoch}, others...)
}

// aLife is the first spans of traces: of a deployment and a set that make a machine, of the machine under two owners, of the hand-over
// between these, and of others.
func aLife() []*Span {
	const root = "root.uid=d-uid"
	machine := []string{root, "machine.name=m", "machine.uid=m-uid", "k8s.namespace.name=ns"}
	pass := func(id string, after, took int, replica, epoch, link string, below ...*Span) *Span {
		return span(id, after, took, "reconcile machine", by(replica, epoch, append(machine, link)...), below...)
	}
	rest := func(id string, after int) *Span {
		return span(id, after, 1, "step", []string{"verdict=Rest", "reason=there is nothing to do until something happens"})
	}
	return []*Span{
		span("d/1", 0, 9, "reconcile machinedeployment", by("fleet-0", "1", root, "machinedeployment.name=d", "generation=3", "k8s.namespace.name=ns"),
			span("d/2", 1, 8, "step", []string{"verdict=Create", "reason=no set has the current template"},
				span("d/3", 1, 7, "create machinesets", []string{"api.server=control", "http.response.status_code=201", "http.request.body.size=1200"}))),
		span("s/1", 20, 30, "reconcile machineset", by("fleet-0", "1", root, "machineset.name=d-1", "d/2"),
			span("s/2", 21, 28, "step", []string{"verdict=Create", "reason=2 machines are recorded and do not exist"},
				span("s/3", 22, 4, "create machines", []string{"api.server=control", "http.response.status_code=201"}),
				span("s/4", 23, 6, "create machines", []string{"api.server=control", "http.response.status_code=201"}))),
		pass("m1/1", 60, 240, "fleet-0", "1", "s/2",
			span("m1/2", 60, 5, "queue", nil),
			span("m1/3", 66, 210, "step", []string{"verdict=CreateVM", "reason=the cloud has no VM of the machine"},
				span("m1/4", 66, 200, "driver.CreateMachine", []string{"provider=simulated", "driver.code=ResourceExhausted", "driver.retry_after_seconds=3", "otel.status_code=ERROR", "otel.status_description=driver create: ResourceExhausted"}))),
		pass("m2/1", 3000, 2, "fleet-0", "1", "s/2", rest("m2/2", 3001)),
		pass("m3/1", 4000, 2, "fleet-0", "1", "s/2", rest("m3/2", 4001)),
		span("r/1", 5000, 40, "release-slot", by("fleet-0", "1"), span("r/2", 5000, 30, "release-slot finish", nil), span("r/3", 5030, 10, "release-slot write", nil)),
		span("h/1", 4990, 110, "hand-over", by("fleet-1", "2", "from=fleet-0_abcde"),
			span("h/2", 4990, 50, "hand-over release", nil), span("h/3", 5040, 20, "hand-over acquire", nil), span("h/4", 5060, 40, "hand-over open", nil)),
		span("m4/1", 5105, 1500, "reconcile machine", by("fleet-1", "2", append(machine, "s/2", "h/1", "lost/1")...), rest("m4/2", 5106)),
		span("x/1", 6000, 5, "reconcile machine", by("fleet-0", "1", "machine.name=other", "machine.uid=o-uid", "k8s.namespace.name=ns")),
		span("y/1", 6000, 5, "hand-over", []string{"replica=fleet-2", "slot=3"}),
	}
}

func TestLifeIsPrintedAsATree(t *testing.T) {
	life, err := LifeOf("ns/m", aLife())
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	life.Print(&text)
	want := `machine ns/m, UID m-uid, sampled by its root's UID d-uid
├─ fleet-0  slot 47  epoch 1  session fleet-0_abcde
│  ├─ +0.000 s  machinedeployment d, generation 3  9 ms
│  │  └─ Create: no set has the current template  8 ms
│  │     └─ create machinesets  control  201  1.2 kB  7 ms
│  ├─ +0.020 s  machineset d-1  30 ms
│  │  └─ Create: 2 machines are recorded and do not exist  28 ms
│  │     └─ create machines  control  201  2 times, 4 ms to 6 ms
│  ├─ +0.060 s  machine  235 ms, after 5 ms in the queue
│  │  └─ CreateVM: the cloud has no VM of the machine  210 ms
│  │     └─ driver.CreateMachine  simulated  ResourceExhausted  retry after 3 s  FAILED driver create: ResourceExhausted  200 ms
│  ├─ +3.000 s  2 passes without a request, until +4.000 s
│  └─ +5.000 s  releases the slot  40 ms
│     ├─ finish  30 ms
│     └─ write  10 ms
├─ +4.990 s  hand-over  fleet-0 → fleet-1  110 ms
│  ├─ release  50 ms
│  ├─ acquire  20 ms
│  └─ open  40 ms
└─ fleet-1  slot 47  epoch 2  session fleet-1_abcde
   └─ +5.105 s  machine  1.50 s
      └─ Rest: there is nothing to do until something happens  1 ms
1 links lead to spans that were not found: Jaeger has dropped them, or they were not sent yet
`
	if diff := cmp.Diff(want, strings.ReplaceAll(text.String(), "s    ", "s  ")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLifeIsThatOfOneMachine(t *testing.T) {
	twin := span("t/1", 0, 1, "reconcile machine", []string{"machine.name=m", "machine.uid=t-uid", "k8s.namespace.name=elsewhere"})
	for name, tc := range map[string]struct {
		machine string
		spans   []*Span
		uid     string
		err     string
	}{
		"by name":                     {"m", aLife(), "m-uid", ""},
		"by namespace and name":       {"elsewhere/m", append(aLife(), twin), "t-uid", ""},
		"two namespaces have it":      {"m", append(aLife(), twin), "", "expected one machine, got elsewhere/m (UID t-uid), ns/m (UID m-uid); give the namespace"},
		"another namespace has it":    {"elsewhere/m", aLife(), "", "there are none"},
		"only a request is about one": {"m", []*Span{span("a/1", 0, 1, "reconcile machineset", nil, span("a/2", 0, 1, "delete machines", []string{"machine.name=m"}))}, "", "there are none"},
	} {
		life, err := LifeOf(tc.machine, tc.spans)
		if life.UID != tc.uid || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: UID %q, error %v", name, life.UID, err)
		}
	}
}

// The set's pass that deletes a machine is a part of its life, although the machine is not linked to it.
func TestLifeHasThePassesThatWriteTheMachine(t *testing.T) {
	deletes := span("e/1", 8000, 9, "reconcile machineset", by("fleet-1", "2", "machineset.name=d-1"),
		span("e/2", 8000, 8, "step", []string{"verdict=Delete", "reason=ScaledDown: replicas 2 → 1"},
			span("e/3", 8001, 7, "delete machines", []string{"machine.name=m", "k8s.namespace.name=ns", "api.server=control", "http.response.status_code=200"})))
	life, err := LifeOf("m", append(aLife(), deletes))
	if err != nil {
		t.Fatal(err)
	}
	if last := life.Tenures[len(life.Tenures)-1].Passes; last[len(last)-1] != deletes {
		t.Error("the pass that deletes the machine is missing")
	}
}

// answers is a Jaeger with two traces: the second is found only by a link.
func answers(t *testing.T) *httptest.Server {
	t.Helper()
	type tag map[string]any
	type wire map[string]any
	data := func(spans ...wire) any { return map[string]any{"data": []any{map[string]any{"spans": spans}}} }
	child := []wire{{"refType": "CHILD_OF", "traceID": "m1", "spanID": "1"}}
	machine := data(
		wire{"traceID": "m1", "spanID": "2", "operationName": "step", "startTime": 1000100, "duration": 50, "references": child, "tags": []tag{{"key": "verdict", "value": "Rest"}}},
		wire{
			"traceID": "m1", "spanID": "1", "operationName": "reconcile machine", "startTime": 1000000, "duration": 200,
			"references": []wire{{"refType": "FOLLOWS_FROM", "traceID": "s", "spanID": "1"}},
			"tags": []tag{
				{"key": "machine.name", "value": "m"},
				{"key": "machine.uid", "value": "u"},
				{"key": "k8s.namespace.name", "value": "ns"},
				{"key": "replica", "value": "fleet-0"},
				{"key": "slot", "value": 12345678},
				{"key": "error", "value": false},
			},
		},
	)
	set := data(wire{"traceID": "s", "spanID": "1", "operationName": "reconcile machineset", "startTime": 999000, "duration": 10, "tags": []tag{
		{"key": "replica", "value": "fleet-0"}, {"key": "slot", "value": 12345678},
	}})
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch query := r.URL.Query(); {
		case r.URL.Path == "/api/traces/s":
			_ = json.NewEncoder(w).Encode(set)
		case query.Get("tags") == `{"machine.name":"m"}` && query.Get("service") == Service:
			_ = json.NewEncoder(w).Encode(machine)
		case query.Get("operation") == releaseSlot, query.Get("tags") == `{"machine.name":"none"}`:
			_ = json.NewEncoder(w).Encode(map[string]any{"data": nil})
		default:
			http.Error(w, "unexpected "+r.URL.String(), http.StatusBadRequest)
		}
	}))
}

func TestLifeIsReadFromJaeger(t *testing.T) {
	server := answers(t)
	defer server.Close()
	jaeger := Jaeger{URL: server.URL}
	life, err := jaeger.Life(t.Context(), "ns/m")
	if err != nil {
		t.Fatal(err)
	}
	if len(life.Tenures) != 1 || len(life.Tenures[0].Passes) != 2 || len(life.Missing) != 0 {
		t.Fatalf("got %+v, want one tenure with the passes of the set and the machine", life)
	}
	if pass := life.Tenures[0].Passes[1]; pass.Name != "reconcile machine" || len(pass.Below) != 1 || pass.Tags["slot"] != "12345678" || pass.Took != 200*time.Microsecond {
		t.Errorf("got %+v", pass)
	}
	if _, err := jaeger.Life(t.Context(), "none"); err == nil || !strings.Contains(err.Error(), "there are none") {
		t.Errorf("a machine without passes: %v", err)
	}
	if link := jaeger.SearchLink("m"); !strings.HasPrefix(link, server.URL+"/search?") || !strings.Contains(link, "machine.name") {
		t.Errorf("link %s", link)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := jaeger.Life(canceled, "m"); !errors.Is(err, context.Canceled) {
		t.Errorf("without an answer: %v", err)
	}
	if _, err := jaeger.get(t.Context(), "/api/other"); err == nil || !strings.Contains(err.Error(), "expected 200") {
		t.Errorf("another answer: %v", err)
	}
}
