package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Prometheus is a real Prometheus that scrapes the lab's replicas, with the labels that the chart's
// ServiceMonitor leads to.
type Prometheus struct {
	// URL is that of its API.
	URL string

	lab     *Lab
	targets string // the file with the replicas
	begin   time.Time
}

// It scrapes more often than an operator would, so that a run is short.
const prometheusConfiguration = `global: {scrape_interval: %[1]s, scrape_timeout: %[1]s, evaluation_interval: %[1]s}
rule_files: [%[3]s]
scrape_configs:
- job_name: fleet
  honor_labels: true
  file_sd_configs: [{files: [%[2]s], refresh_interval: 1s}]
`

// StartPrometheus starts a Prometheus until the end of the test, in a new folder of the lab. It
// scrapes and evaluates rules once in an interval. ruleFile is a file of rules, "" for none.
func StartPrometheus(ctx context.Context, t *testing.T, lab *Lab, interval time.Duration, ruleFile string) *Prometheus {
	t.Helper()
	dir := filepath.Join(lab.Dir, "prometheus")
	port := FreePort(ctx, t)
	p := &Prometheus{lab: lab, targets: filepath.Join(dir, "targets.json"), URL: "http://127.0.0.1:" + port, begin: time.Now()}
	configuration := filepath.Join(dir, "prometheus.yaml")
	err := os.MkdirAll(dir, 0o750)
	if err == nil {
		err = errors.Join(os.WriteFile(configuration, fmt.Appendf(nil, prometheusConfiguration, interval, p.targets, ruleFile), 0o600),
			p.Scrape(ctx))
	}
	if err != nil {
		t.Fatal(err)
	}
	StartProgram(ctx, t, dir, "prometheus", "--config.file="+configuration, "--storage.tsdb.path="+filepath.Join(dir, "tsdb"),
		"--web.listen-address=127.0.0.1:"+port)
	if err := Eventually(ctx, "Prometheus is ready", func(ctx context.Context) error {
		return send(ctx, http.MethodGet, p.URL+"/-/ready", nil, nil)
	}); err != nil {
		t.Fatal(err)
	}
	return p
}

// Scrape makes Prometheus scrape the replicas that exist now, and their drivers as the chart has
// them scraped.
func (p *Prometheus) Scrape(ctx context.Context) error {
	type group struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	replicas, err := p.lab.Replicas(ctx)
	if err != nil {
		return err
	}
	var groups []group
	for _, replica := range replicas {
		groups = append(groups, group{
			Targets: []string{strings.TrimPrefix(p.lab.Endpoint(replica), "http://")},
			Labels:  map[string]string{"namespace": FleetNamespace, "service": FleetName, "pod": replica},
		}, group{
			Targets: []string{strings.TrimPrefix(p.lab.Endpoint("driver-simulated-"+replica), "http://")},
			Labels:  map[string]string{"job": FleetName + "-driver-simulated", "namespace": FleetNamespace, "service": FleetName, "pod": replica},
		})
	}
	text, err := json.Marshal(groups)
	if err != nil {
		return fmt.Errorf("write the targets of Prometheus: %w", err)
	}
	// Renamed, because Prometheus may read at any time.
	return errors.Join(os.WriteFile(p.targets+".new", text, 0o600), os.Rename(p.targets+".new", p.targets))
}

// Series is one series of an answer: its labels, and its values that are numbers, in the order of
// time.
type Series struct {
	Labels map[string]string
	Values []float64
}

// Query returns the current values of a query.
func (p *Prometheus) Query(ctx context.Context, query string) ([]Series, error) {
	return p.get(ctx, "/api/v1/query", url.Values{"query": {query}})
}

// QueryAll returns the values of a query from the start of Prometheus until now, one in each step.
func (p *Prometheus) QueryAll(ctx context.Context, query string, step time.Duration) ([]Series, error) {
	seconds := func(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }
	return p.get(ctx, "/api/v1/query_range", url.Values{
		"query": {query}, "start": {seconds(p.begin)}, "end": {seconds(time.Now())}, "step": {step.String()},
	})
}

// Value returns the result of a query that has one; without one it is 0, and known is false.
func (p *Prometheus) Value(ctx context.Context, query string) (value float64, known bool, err error) {
	all, err := p.Query(ctx, query)
	if err != nil || len(all) != 1 || len(all[0].Values) != 1 {
		return 0, false, err
	}
	return all[0].Values[0], true, nil
}

// LabelValues returns the values of a label, of the series that match a selector.
func (p *Prometheus) LabelValues(ctx context.Context, label, selector string) ([]string, error) {
	var answer struct {
		Data []string `json:"data"`
	}
	err := send(ctx, http.MethodGet, p.URL+"/api/v1/label/"+label+"/values?"+url.Values{"match[]": {selector}}.Encode(), nil, &answer)
	return answer.Data, err
}

// get requests values. What is not a number is left out: a quantile of no observations, for
// example.
func (p *Prometheus) get(ctx context.Context, path string, parameters url.Values) ([]Series, error) {
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string `json:"metric"`
				Value  []any             `json:"value"`
				Values [][]any           `json:"values"`
			} `json:"result"`
		} `json:"data"`
	}
	if err := send(ctx, http.MethodGet, p.URL+path+"?"+parameters.Encode(), nil, &answer); err != nil {
		return nil, err
	}
	var all []Series
	for _, result := range answer.Data.Result {
		series := Series{Labels: result.Metric}
		points := result.Values
		if result.Value != nil {
			points = append(points, result.Value)
		}
		for _, point := range points {
			if len(point) != 2 {
				return nil, fmt.Errorf("expected points of time and value from Prometheus, got %v", point)
			}
			value, err := strconv.ParseFloat(fmt.Sprint(point[1]), 64)
			if err != nil {
				return nil, fmt.Errorf("expected a number from Prometheus, got %v: %w", point[1], err)
			}
			if !math.IsNaN(value) {
				series.Values = append(series.Values, value)
			}
		}
		all = append(all, series)
	}
	return all, nil
}
