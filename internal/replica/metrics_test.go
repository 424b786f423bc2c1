package replica

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientmetrics "k8s.io/client-go/tools/metrics"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/buildinfo"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/serving"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/golden"
)

// metric describes a metric.
type metric struct {
	kind   string // "" when it is not known
	labels []string
	help   string
}

// String returns kind and labels.
func (m metric) String() string { return m.kind + " {" + strings.Join(m.labels, ", ") + "}" }

// elsewhere returns the kind of a metric that TestMetrics does not lead to, because another test
// does.
func elsewhere(name string) string {
	switch {
	case strings.HasPrefix(name, "mcm_machine_deployment_"), strings.HasPrefix(name, "mcm_machine_set_"):
		return "gauge" // TestMetrics of their controllers has objects with all fields
	case name == "mcf_orphans":
		return "gauge" // the cloud of these tests cannot be swept, and that of controllers/orphans can
	case name == "mcm_machine_initialize_duration_seconds":
		return "gauge" // this cloud has no InitializeMachine; controllers/machine notes one
	}
	return ""
}

// processMetrics returns the metrics of the process of the tests. client-go keeps the metrics of
// requests that were registered first.
var processMetrics = sync.OnceValue(func() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	serving.RegisterProcess(registry, buildinfo.Info{})
	return registry
})

// TestMetrics runs a replica through the lives of machines, and compares the metrics that it has
// registered and that it emits with the golden list and with the documentation.
func TestMetrics(t *testing.T) {
	o := replicaOptions(func(o *Options) { o.Configs.Enabled, o.ServeAutoscalers = true, true })
	o.MetricsByMachine = telemetry.SeriesByMachine()
	o.Machine.CreationTimeout, o.Health.Timeout = 2*time.Minute, time.Minute
	all := map[string]metric{}
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t, o, 1, nil)
		defer r.end()
		spans := tracetest.NewSpanRecorder()
		r.tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
		p := r.start("fleet-0")
		page := serving.ServeMetrics(prometheus.Gatherers{processMetrics(), p.registry}, p.registry, klog.Background())
		for _, registry := range []*prometheus.Registry{processMetrics(), p.registry} {
			for description := range descriptions(registry) {
				addDescription(t, all, description)
			}
		}
		r.liveAll(p, func() {
			for _, family := range p.metrics() {
				addFamily(t, all, family)
			}
		})
		families, err := processMetrics().Gather()
		if err != nil {
			t.Error(err)
		}
		for _, family := range families {
			addFamily(t, all, family)
		}
		lint(t, prometheus.Gatherers{processMetrics(), p.registry})
		checkFormats(t, page, spans.Ended())
	})
	page, err := os.ReadFile("../../docs/operations/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var list strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			continue // they depend on Go's version and on the system
		}
		m := all[name]
		if m.kind == "" {
			m.kind = elsewhere(name)
		}
		if m.kind == "" {
			t.Errorf("%s is registered and not emitted: have this test lead to it", name)
		}
		if !strings.Contains(string(page), "`"+name+"`") && !strings.Contains(string(page), "`"+name+"{") {
			t.Errorf("docs/operations/metrics.md does not describe %s", name)
		}
		fmt.Fprintf(&list, "%s %s\n    %s\n", name, m, m.help)
	}
	golden.Compare(t, "testdata/metrics.txt", list.String())
}

// misnamed are the metrics to which promtool objects, with its objection: they have the names of
// Machine Controller Manager's.
var misnamed = map[string]string{
	"mcm_machine_items_total":            `non-counter metrics should not have "_total" suffix`,
	"mcm_machine_set_items_total":        `non-counter metrics should not have "_total" suffix`,
	"mcm_machine_deployment_items_total": `non-counter metrics should not have "_total" suffix`,
	"mcm_machine_num_failed_join":        `counter metrics should have "_total" suffix`,
	"mcm_machine_info":                   `label names should be written in 'snake_case' not 'camelCase'`,
	"mcm_machine_set_info":               `label names should be written in 'snake_case' not 'camelCase'`,
	"mcm_machine_deployment_info":        `label names should be written in 'snake_case' not 'camelCase'`,
}

// lint checks metrics as promtool does, and allows only the objections that are expected.
func lint(t *testing.T, metrics prometheus.Gatherer) {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		if misnamed[problem.Metric] != problem.Text {
			t.Errorf("%s: %s", problem.Metric, problem.Text)
		}
	}
}

// checkFormats scrapes in both formats: they have the same series, and exemplars of OpenMetrics
// name traces that are there.
func checkFormats(t *testing.T, page http.Handler, spans []sdktrace.ReadOnlySpan) {
	t.Helper()
	scrape := func(accept string) string {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
		request.Header.Set("Accept", accept)
		answer := httptest.NewRecorder()
		page.ServeHTTP(answer, request)
		return answer.Body.String()
	}
	series := func(text string) []string {
		var names []string
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "#") {
				names = append(names, line[:strings.IndexAny(line, "{ ")])
			}
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	text, open := scrape("text/plain"), scrape("application/openmetrics-text; version=1.0.0")
	if diff := cmp.Diff(series(text), series(open)); diff != "" {
		t.Errorf("series (-text +OpenMetrics):\n%s", diff)
	}
	traces := map[string]bool{}
	for _, span := range spans {
		traces[span.SpanContext().TraceID().String()] = true
	}
	of := map[string]bool{}
	for _, found := range regexp.MustCompile(`(?m)^(\w+)_bucket.*trace_id="(\w+)"`).FindAllStringSubmatch(open, -1) {
		of[found[1]] = true
		if !traces[found[2]] {
			t.Errorf("an exemplar of %s names trace %s, which there is not", found[1], found[2])
		}
	}
	for _, name := range []string{
		"mcf_machine_step_seconds", "controller_runtime_reconcile_time_seconds", "mcm_cloud_api_driver_request_duration_seconds",
	} {
		if !of[name] {
			t.Errorf("%s has no exemplars", name)
		}
	}
}

// descriptions returns all descriptions of a registry.
func descriptions(registry *prometheus.Registry) <-chan *prometheus.Desc {
	all := make(chan *prometheus.Desc)
	go func() {
		registry.Describe(all)
		close(all)
	}()
	return all
}

// addDescription adds a metric that is registered.
func addDescription(t *testing.T, all map[string]metric, description *prometheus.Desc) {
	t.Helper()
	var name, help, unit, constant, variable string
	text := strings.NewReplacer("}, variableLabels: {", " ", "constLabels: {", "", "}}", "").Replace(description.String())
	if _, err := fmt.Sscanf(text, "Desc{fqName: %q, help: %q, unit: %q, ", &name, &help, &unit); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	_, rest, _ := strings.Cut(text, fmt.Sprintf("unit: %q, ", unit))
	constant, variable, _ = strings.Cut(rest, " ")
	m := metric{help: help}
	for pair := range strings.SplitSeq(constant, ",") {
		if label, _, ok := strings.Cut(pair, "="); ok {
			m.labels = append(m.labels, label)
		}
	}
	m.labels = append(m.labels, strings.FieldsFunc(variable, func(r rune) bool { return r == ',' })...)
	slices.Sort(m.labels)
	all[name] = m
}

// addFamily adds the kind of a metric that is emitted.
func addFamily(t *testing.T, all map[string]metric, family *dto.MetricFamily) {
	t.Helper()
	m := all[family.GetName()]
	m.kind = strings.ToLower(family.GetType().String())
	for _, series := range family.GetMetric() {
		var labels []string
		for _, label := range series.GetLabel() {
			labels = append(labels, label.GetName())
		}
		slices.Sort(labels)
		if !slices.Equal(m.labels, labels) {
			t.Errorf("%s: labels (-registered +emitted):\n%s", family.GetName(), cmp.Diff(m.labels, labels))
		}
	}
	all[family.GetName()] = m
}

// liveAll leads to all metrics of a replica, and calls gather meanwhile.
func (t *trial) liveAll(p *process, gather func()) {
	until := func(what string, cond func() bool) {
		t.Helper()
		if !t.run(10*time.Minute, func() bool { gather(); return cond() }) {
			t.Fatalf("expected that %s; %s %s", what, t.wrong, t.missing())
		}
	}
	t.createUnmanaged()
	t.putPools("one")
	t.createClass("a")
	t.putRoot("a", "workers", 3)
	until("three machines run", func() bool { return t.missing() == "" })
	sendAll(t.T)

	unhealthy := t.breakOneOfEach()
	until("an unhealthy machine is replaced", func() bool { return t.left(unhealthy) == 0 })
	until("three machines run", func() bool { return t.missing() == "" })

	machine := t.control.List("machines")[0]
	drained := map[string]bool{machine.GetName(): true}
	t.put(t.target, "pods", map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"namespace": "a", "name": "web"},
		"spec": map[string]any{"nodeName": machine.GetLabels()[v1alpha1.LabelNode]},
	})
	t.control.Edit("machines", machine.GetNamespace(), machine.GetName(), func(u *unstructured.Unstructured) {
		labels := u.GetLabels()
		labels[v1alpha1.LabelForceDeletion] = "True"
		u.SetLabels(labels)
	})
	t.control.Delete("machines", machine.GetNamespace(), machine.GetName())
	until("a machine is drained and deleted", func() bool { return t.left(drained) == 0 })

	t.putRoot("a", "late", 1)
	until("a machine does not join", func() bool {
		t.delayBoots("late")
		_, failed := p.metric("mcm_machine_num_failed_join")
		return failed
	})
}

// delayBoots has the VMs of a root that have not joined join a minute later.
func (t *trial) delayBoots(root string) {
	t.cloud.Change(func(all []*fakecloud.Resource) {
		for _, v := range all {
			if strings.HasPrefix(v.Machine, root) && !v.Joined {
				v.Boots = time.Now().Add(time.Minute)
			}
		}
	})
}

// sendAll sends what no replica of these tests does: requests to API servers that wait or are
// repeated.
func sendAll(t *testing.T) {
	t.Helper()
	clientmetrics.RateLimiterLatency.Observe(t.Context(), "GET", url.URL{Host: "control"}, time.Second)
	clientmetrics.RequestRetry.IncrementRetry(t.Context(), "429", "GET", "control")
}

// notMCM is the remark in a line of the list of Machine Controller Manager's metrics for one that a
// replica does not serve, before the reason.
const notMCM = "not served: "

// TestMetricsOfMCM compares the golden list of metrics with the list of those of Machine Controller
// Manager: what that has is served with the same type and labels, or the list says why not.
func TestMetricsOfMCM(t *testing.T) {
	lines := func(file string) []string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(string(text)), "\n")
	}
	own := map[string]string{}
	for _, line := range lines("testdata/metrics.txt") {
		if name, is, ok := strings.Cut(line, " "); ok && name != "" {
			own[name] = is
		}
	}
	known := map[string]bool{}
	for _, line := range lines("testdata/mcm-metrics.txt") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, is, ok := strings.Cut(line, " ")
		if !ok {
			t.Fatalf("expected name, type, labels and whether it is served, got %q", line)
		}
		is, reason, absent := strings.Cut(is, " "+notMCM)
		known[name] = true
		switch got, served := own[name]; {
		case absent && (served || reason == ""):
			t.Errorf("%s: expected that it is not served, with a reason; got %q, and the reason %q", name, got, reason)
		case !absent && got != is:
			t.Errorf("%s is %s, want %s", name, got, is)
		}
	}
	for name := range own {
		if strings.HasPrefix(name, "mcm_") && !known[name] {
			t.Errorf("%s: expected the prefix mcm_ of metrics of Machine Controller Manager only", name)
		}
	}
}

// answers of a server, one after the other.
type answers func(*http.Request) (*http.Response, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }
