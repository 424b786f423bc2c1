package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// spanOf is a span as JSON: references and tags are key=value, references with the keys CHILD_OF
// and FOLLOWS_FROM.
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
	return fmt.Sprintf(
		`{"traceID":%q,"spanID":%q,"operationName":%q,"startTime":%d,"duration":%d,"references":[%s],"tags":[%s,{"key":"mcf.slot","value":12345678}]}`,
		trace, own, name, start, took, strings.Join(references, ","), strings.Join(append(tags, `{"key":"error","value":false}`), ","),
	)
}

// jaegerWith serves traces: of the machine m when it is searched by name, and of its set and a
// hand-over by their IDs.
func jaegerWith(t *testing.T, machines ...string) string {
	t.Helper()
	linked := map[string]string{
		"/api/traces/s": spanOf("s/1", "reconcile machineset", 100, 30_000, "mcf.replica=fleet-0", "mcf.session=fleet-0_abcde", "mcf.epoch=1",
			"mcf.machineset.name=d-1") + "," +
			spanOf("s/2", "create", 101, 29_000, "CHILD_OF=s/1", "mcf.reason.text=2 machines do not exist") + "," +
			spanOf("s/3", "create machines", 102, 4000, "CHILD_OF=s/2", "mcf.api.server=control", "http.response.status_code=201"),
		"/api/traces/h": spanOf("h/1", "hand-over", 2_000_000, 110_000, "mcf.replica=fleet-1", "mcf.session=fleet-1_abcde", "mcf.epoch=2",
			"mcf.from=fleet-0_abcde") + "," +
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
		case r.URL.Path == "/api/traces" && r.URL.Query().Get("tags") == `{"mcf.machine.name":"m"}` &&
			r.URL.Query().Get("service") == tracedService:
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
	return append([]string{
		"mcf.machine.name=m", "k8s.namespace.name=" + namespace, "mcf.replica=" + replica, "mcf.session=" + replica + "_abcde",
		"mcf.epoch=" + epoch,
	}, others...)
}

func TestLifeIsPrintedWithItsOwners(t *testing.T) {
	jaeger := jaegerWith(t,
		spanOf("c/r", "create machine", 500_000, 3_000_000, "mcf.machine.name=m", "k8s.namespace.name=ns", "FOLLOWS_FROM=s/3")+","+
			spanOf("c/1", passOfMachine, 500_100, 240_000, ofMachine("ns", "fleet-0", "1", "CHILD_OF=c/r")...)+","+
			spanOf("c/2", "driver.CreateMachine", 500_200, 200_000, "CHILD_OF=c/1", "mcf.session=fleet-0_abcde", "mcf.provider=simulated",
				"mcf.driver.code=ResourceExhausted")+","+
			spanOf("c/3", "driver.CreateMachine requested", 600_000, 0, "CHILD_OF=c/lost", "mcf.session=fleet-0_abcde", "mcf.epoch=1")+","+
			spanOf("c/4", passOfMachine, 3_000_000, 5000,
				ofMachine("ns", "fleet-1", "2", "CHILD_OF=c/r", "FOLLOWS_FROM=h/1", "FOLLOWS_FROM=lost/1")...)+","+
			spanOf("c/5", "find VM", 3_000_001, 4000, "CHILD_OF=c/4", "otel.status_code=ERROR", "otel.status_description=refused"))
	life, err := lifeOf(t.Context(), jaeger, "ns/m", 2)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	printLife(&text, life)
	want := `+0.000 s  trace s
  reconcile machineset  d-1  30ms  (fleet-0_abcde, slot 12345678, epoch 1)
    create: 2 machines do not exist  29ms
      create machines  control  201  4ms
+0.500 s  trace c
  create machine  3s
    reconcile machine  240ms  (fleet-0_abcde, slot 12345678, epoch 1)
      driver.CreateMachine  simulated  ResourceExhausted  200ms
    driver.CreateMachine requested  0s  (fleet-0_abcde, slot 12345678, epoch 1)
    reconcile machine  5ms  (fleet-1_abcde, slot 12345678, epoch 2)
      find VM  refused  4ms
+2.000 s  trace h
  hand-over  fleet-0_abcde  110ms  (fleet-1_abcde, slot 12345678, epoch 2)
    hand-over open  40ms
`
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLifeIsThatOfOneMachine(t *testing.T) {
	one := spanOf("a/1", passOfMachine, 0, 1, ofMachine("ns", "fleet-0", "1")...)
	twin := spanOf("b/1", passOfMachine, 0, 1, ofMachine("other", "fleet-0", "1")...)
	written := spanOf("c/1", "delete machines", 0, 1, "mcf.machine.name=m", "k8s.namespace.name=ns")
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
		"it has no pass yet":     {"m", 0, []string{written}, 1, ""},
		"Jaeger has nothing":     {"m", 0, nil, 0, "Jaeger has none"},
		"no pass of any epoch":   {"m", 1, []string{written}, 0, "Jaeger has none"},
		"an earlier epoch":       {"m", 2, []string{one}, 0, "the last are in epoch 1"},
		"Jaeger fails":           {"x", 0, nil, 0, "got 500"},
	} {
		life, err := lifeOf(t.Context(), jaegerWith(t, test.traces...), test.machine, test.epoch)
		if len(life) != test.number || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: got %d traces, %v, want %d, %q", name, len(life), err, test.number, test.err)
		}
	}
}
