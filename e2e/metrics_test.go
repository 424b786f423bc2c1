//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// misnamed are the metrics to which promtool objects, with its objection: they have the names of Machine Controller Manager's.
var misnamed = map[string]string{
	"mcm_machine_items_total":            `non-counter metrics should not have "_total" suffix`,
	"mcm_machine_set_items_total":        `non-counter metrics should not have "_total" suffix`,
	"mcm_machine_deployment_items_total": `non-counter metrics should not have "_total" suffix`,
	"mcm_machine_num_failed_join":        `counter metrics should have "_total" suffix`,
	"mcm_machine_info":                   `label names should be written in 'snake_case' not 'camelCase'`,
	"mcm_machine_set_info":               `label names should be written in 'snake_case' not 'camelCase'`,
	"mcm_machine_deployment_info":        `label names should be written in 'snake_case' not 'camelCase'`,
}

// TestMetrics has machines live, and looks at what replicas serve: promtool accepts it, it is in the golden list with its type and its labels,
// it is the same in both formats, and its exemplars name traces that Jaeger has.
func TestMetrics(t *testing.T) {
	t.Parallel()
	lab := startLab(t, "metrics", func(o *harness.Options) {
		o.Replicas, o.Tracing, o.FleetFlags = 2, true, "--metrics-by-machine=all"
	})
	s := newSpace(t, lab, "metrics", "")
	s.deploy("pool", 3)
	s.running("pool", 3)
	s.scale("pool", 1)
	s.running("pool", 1)
	replicas, err := lab.Replicas(t.Context())
	s.must(err)
	s.must(held(t.Context(), lab))
	known := goldenMetrics(t)
	traces := map[string]bool{}
	for _, replica := range replicas {
		text, open := s.scrapedAlike(replica)
		checkByPromtool(t, text)
		families, series := read(t, text)
		for name, kind := range families {
			if is, ok := known[name]; (!ok || !strings.HasPrefix(is, kind+" ")) && !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
				t.Errorf("%s serves the %s %s, and the golden list has %q", replica, kind, name, is)
			}
		}
		for name, labels := range series {
			if is, ok := known[familyOf(name, families)]; ok && !strings.HasSuffix(is, " {"+labels+"}") {
				t.Errorf("%s serves %s with the labels %q, and the golden list has %s", replica, name, labels, is)
			}
		}
		for _, found := range regexp.MustCompile(`(?m)^(mcf_machine_step_seconds|controller_runtime_reconcile_time_seconds|mcm_cloud_api_driver_request_duration_seconds)_bucket.*trace_id="(\w+)"`).
			FindAllStringSubmatch(open, -1) {
			traces[found[1]+" "+found[2]] = true
		}
	}
	s.eventually("one machine has series: of those that exist, once", func(ctx context.Context) error {
		machines := 0
		for _, replica := range replicas {
			text, err := scraped(ctx, lab, replica, asText)
			if err != nil {
				return err
			}
			machines += strings.Count(text, "\nmcm_machine_info{")
		}
		if machines != 1 {
			return fmt.Errorf("%d have", machines)
		}
		return nil
	})
	checkTraces(t, lab, slices.Collect(maps.Keys(traces)))
}

// checkTraces looks for the traces of exemplars, each as "<metric> <ID>": there are some of each metric. Spans are sent every 5 s.
func checkTraces(t *testing.T, lab *harness.Lab, exemplars []string) {
	t.Helper()
	metrics := map[string]bool{}
	for _, exemplar := range exemplars {
		metric, id, _ := strings.Cut(exemplar, " ")
		metrics[metric] = true
		eventually(t, "the trace of an exemplar of "+metric, func(ctx context.Context) error {
			_, err := fetched(ctx, lab.Endpoint("jaeger")+"/api/traces/"+id, "")
			return err
		})
	}
	if len(metrics) != 3 {
		t.Errorf("exemplars of %v, want some of passes, calls of drivers and steps", slices.Collect(maps.Keys(metrics)))
	}
}

// Formats of metrics.
const (
	asText        = "text/plain"
	asOpenMetrics = "application/openmetrics-text; version=1.0.0"
)

// scrapedAlike returns the metrics of a replica in both formats, with the same series. Between the two scrapes, some may have come.
func (s *space) scrapedAlike(replica string) (text, open string) {
	s.Helper()
	s.eventually(replica+" serves the same series in both formats", func(ctx context.Context) (err error) {
		if text, err = scraped(ctx, s.lab, replica, asText); err != nil {
			return err
		}
		if open, err = scraped(ctx, s.lab, replica, asOpenMetrics); err != nil {
			return err
		}
		_, inText := read(s.T, text)
		if _, inOpen := read(s.T, open); !maps.Equal(inText, inOpen) {
			return fmt.Errorf("as text %v, as OpenMetrics %v", slices.Sorted(maps.Keys(inText)), slices.Sorted(maps.Keys(inOpen)))
		}
		return nil
	})
	return text, open
}

// scraped returns the metrics of a replica in a format.
func scraped(ctx context.Context, lab *harness.Lab, replica, format string) (string, error) {
	return fetched(ctx, lab.Endpoint(replica)+"/metrics", format)
}

func fetched(ctx context.Context, url, accept string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	request.Header.Set("Accept", accept)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("get %s: %s", url, answer.Status)
	}
	return string(text), err
}

// checkByPromtool has promtool check metrics, and allows only the objections that are expected.
func checkByPromtool(t *testing.T, text string) {
	t.Helper()
	bin, err := harness.Bin()
	if err != nil {
		t.Fatal(err)
	}
	promtool := exec.CommandContext(t.Context(), filepath.Join(bin, "promtool"), "check", "metrics")
	promtool.Stdin = strings.NewReader(text)
	said, err := promtool.CombinedOutput()
	if len(said) == 0 && err != nil {
		t.Fatalf("promtool: %v; hack/chart-alerts.sh builds it", err)
	}
	for line := range strings.Lines(string(said)) {
		name, objection, _ := strings.Cut(strings.TrimSpace(line), " ")
		if misnamed[name] != objection {
			t.Errorf("promtool: %s", line)
		}
	}
}

// goldenMetrics returns type and labels of all metrics by their names.
func goldenMetrics(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../cmd/machine-controller-fleet/testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, is, ok := strings.Cut(strings.TrimRight(line, "\n"), " "); ok && name != "" {
			known[name] = is
		}
	}
	return known
}

var label = regexp.MustCompile(`(\w+)="(?:[^"\\]|\\.)*"`)

// read returns the types of the metrics in a scrape, and the labels of their series, without those of buckets, by the names of the series.
func read(t *testing.T, text string) (families, series map[string]string) {
	t.Helper()
	families, series = map[string]string{}, map[string]string{}
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			families[name] = kind
		}
		if strings.HasPrefix(line, "#") || line == "" {
			continue
		}
		line, _, _ = strings.Cut(line, " # ")
		name := line[:strings.IndexAny(line, "{ ")]
		var labels []string
		for _, found := range label.FindAllStringSubmatch(line, -1) {
			if found[1] != "le" && found[1] != "quantile" {
				labels = append(labels, found[1])
			}
		}
		slices.Sort(labels)
		series[name] = strings.Join(labels, ", ")
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return families, series
}

// familyOf returns the name of the metric of a series.
func familyOf(series string, families map[string]string) string {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if name, ok := strings.CutSuffix(series, suffix); ok && families[name] == "histogram" {
			return name
		}
	}
	return series
}
