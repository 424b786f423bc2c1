package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// spanOf is a span as JSON: references and tags are key=value, references with the keys CHILD_OF and FOLLOWS_FROM.
func spanOf(id, name string, start, took int, attributes ...string) string {
	trace, own, _ := strings.Cut(id, "/")
	var references, tags []string
	for _, a := range attributes {
		key, value, _ := strings.Cut(a, "=")
		if linked, to, ok := strings.Cut(value, "/"); ok {
			references = append(references, fmt.Sprintf(`{"refType":%q,"traceID":%q,"spanID":%q}`, key, linked, to))
		} else {
			tags = append(tags, fmt.Sprintf(`{"key":%q,"value":%q}`, key, value))
		}
	}
	return fmt.Sprintf(`{"traceID":%q,"spanID":%q,"operationName":%q,"startTime":%d,"duration":%d,"references":[%s],"tags":[%s,{"key":"slot","value":12345678}]}`,
		trace, own, name, start, took, strings.Join(references, ","), strings.Join(append(tags, `{"key":"error","value":false}`), ","))
}

// jaegerWith serves traces: of the machine m when it is searched by name, and of its set and a hand-over by their IDs.
func jaegerWith(t *testing.T, machines ...string) string {
	t.Helper()
	linked := map[string]string{
		"/api/traces/s": spanOf("s/1", "reconcile machineset", 100, 30_000, "replica=fleet-0", "session=fleet-0_abcde", "epoch=1", "machineset.name=d-1") + "," +
			spanOf("s/2", "step", 101, 29_000, "CHILD_OF=s/1", "verdict=Create", "reason=2 machines do not exist") + "," +
			spanOf("s/3", "create machines", 102, 4000, "CHILD_OF=s/2", "api.server=control", "http.response.status_code=201"),
		"/api/traces/h": spanOf("h/1", "hand-over", 2_000_000, 110_000, "replica=fleet-1", "session=fleet-1_abcde", "epoch=2", "from=fleet-0_abcde") + "," +
			spanOf("h/2", "hand-over open", 2_000_001, 40_000, "CHILD_OF=h/1"),
	}
	data := func(traces ...string) string {
		for i, spans := range traces {
			id, _, _ := strings.Cut(strings.TrimPrefix(spans, `{"traceID":"`), `"`)
			traces[i] = fmt.Sprintf(`{"traceID":%q,"spans":[%s]}`, id, spans)
		}
		return `{"data":[` + strings.Join(traces, ",") + `]}`
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		spans, isLinked := linked[r.URL.Path]
		switch {
		case isLinked:
			fmt.Fprint(w, data(spans))
		case r.URL.Path == "/api/traces" && r.URL.Query().Get("tags") == `{"machine.name":"m"}` && r.URL.Query().Get("service") == tracedService:
			fmt.Fprint(w, data(append([]string{}, machines...)...))
		case r.URL.Path == "/api/traces":
			http.Error(w, "broken", http.StatusInternalServerError)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// ofMachine returns the tags of a pass of the machine, with others.
func ofMachine(namespace, replica, epoch string, others ...string) []string {
	return append([]string{"machine.name=m", "k8s.namespace.name=" + namespace, "replica=" + replica, "session=" + replica + "_abcde", "epoch=" + epoch}, others...)
}

func TestLifeIsPrintedByOwner(t *testing.T) {
	jaeger := jaegerWith(t,
		spanOf("m2/1", passOfMachine, 3_000_000, 5000, ofMachine("ns", "fleet-1", "2", "FOLLOWS_FROM=h/1", "FOLLOWS_FROM=lost/1")...)+","+
			spanOf("m2/2", "step", 3_000_001, 4000, "CHILD_OF=m2/1", "otel.status_code=ERROR", "otel.status_description=refused"),
		spanOf("m1/1", passOfMachine, 500_100, 240_000, ofMachine("ns", "fleet-0", "1", "FOLLOWS_FROM=s/3")...)+","+
			spanOf("m1/2", "driver.CreateMachine", 500_200, 200_000, "CHILD_OF=m1/1", "provider=simulated", "driver.code=ResourceExhausted"),
		spanOf("q/1", passOfMachine, 4_000_000, 9, ofMachine("ns", "fleet-1", "2")...))
	life, err := lifeOf(t.Context(), jaeger, "ns/m", 2)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	printLife(&text, life)
	want := `fleet-0  slot 12345678  epoch 1  session fleet-0_abcde
  +0.000 s
    reconcile machineset  d-1  30ms
      step  Create: 2 machines do not exist  29ms
        create machines  control  201  4ms
  +0.500 s
    reconcile machine  240ms
      driver.CreateMachine  simulated  ResourceExhausted  200ms
fleet-1  slot 12345678  epoch 2  session fleet-1_abcde
  +2.000 s
    hand-over  fleet-0_abcde  110ms
      hand-over open  40ms
  +3.000 s
    reconcile machine  5ms
      step  refused  4ms
1 passes without a request are left out
`
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLifeIsThatOfOneMachine(t *testing.T) {
	one := spanOf("a/1", passOfMachine, 0, 1, ofMachine("ns", "fleet-0", "1")...)
	twin := spanOf("b/1", passOfMachine, 0, 1, ofMachine("other", "fleet-0", "1")...)
	written := spanOf("c/1", "delete machines", 0, 1, "machine.name=m", "k8s.namespace.name=ns")
	for name, test := range map[string]struct {
		machine string
		epoch   int64
		traces  []string
		number  int
		err     string
	}{
		"by name":                {"m", 0, []string{one}, 1, ""},
		"by namespace":           {"ns/m", 1, []string{one, twin, written}, 2, ""},
		"two namespaces have it": {"m", 0, []string{one, twin}, 0, "give the namespace"},
		"it has no pass":         {"m", 0, []string{written}, 0, "there are none"},
		"an earlier epoch":       {"m", 2, []string{one}, 0, "the last are in epoch 1"},
		"Jaeger fails":           {"x", 0, nil, 0, "got 500"},
	} {
		life, err := lifeOf(t.Context(), jaegerWith(t, test.traces...), test.machine, test.epoch)
		if len(life) != test.number || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: got %d traces, %v, want %d, %q", name, len(life), err, test.number, test.err)
		}
	}
}
