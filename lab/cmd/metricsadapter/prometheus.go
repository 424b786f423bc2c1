package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/metrics/pkg/apis/external_metrics"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/provider"
)

// prometheus answers external metrics with queries.
type prometheus struct {
	address string
	client  *http.Client
	queries map[string]string // PromQL by metric
}

var _ provider.ExternalMetricsProvider = (*prometheus)(nil)

// GetExternalMetric returns the result of a metric's query. Errors: an unknown metric, Prometheus does not answer, or the query
// has no value: the autoscaler then changes nothing.
func (p *prometheus) GetExternalMetric(ctx context.Context, _ string, _ labels.Selector, info provider.ExternalMetricInfo) (*external_metrics.ExternalMetricValueList, error) {
	query, known := p.queries[info.Metric]
	if !known {
		return nil, provider.NewMetricNotFoundError(external_metrics.Resource("externalmetrics"), info.Metric)
	}
	value, at, err := p.query(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("metric %s: %w", info.Metric, err)
	}
	return &external_metrics.ExternalMetricValueList{Items: []external_metrics.ExternalMetricValue{{
		MetricName: info.Metric, Timestamp: metav1.NewTime(at), Value: *resource.NewMilliQuantity(int64(math.Round(value*1000)), resource.DecimalSI),
	}}}, nil
}

// ListAllExternalMetrics returns the metrics.
func (p *prometheus) ListAllExternalMetrics() (all []provider.ExternalMetricInfo) {
	for _, name := range slices.Sorted(maps.Keys(p.queries)) {
		all = append(all, provider.ExternalMetricInfo{Metric: name})
	}
	return all
}

// answer is Prometheus' answer to an instant query.
type answer struct {
	Error string `json:"error"`
	Data  struct {
		Result []struct {
			Value [2]any `json:"value"` // seconds, and the number as text
		} `json:"result"`
	} `json:"data"`
}

// query returns the one value of a query, and its time.
func (p *prometheus) query(ctx context.Context, query string) (value float64, at time.Time, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.address+"/api/v1/query?query="+url.QueryEscape(query), http.NoBody)
	if err != nil {
		return 0, at, fmt.Errorf("query Prometheus: %w", err)
	}
	response, err := p.client.Do(request)
	if err != nil {
		return 0, at, fmt.Errorf("query Prometheus: %w", err)
	}
	defer response.Body.Close()
	var got answer
	if err := json.NewDecoder(response.Body).Decode(&got); err != nil {
		return 0, at, fmt.Errorf("read the answer of Prometheus (%s): %w", response.Status, err)
	}
	if response.StatusCode != http.StatusOK || len(got.Data.Result) != 1 {
		return 0, at, fmt.Errorf("expected one value of Prometheus, got %s with %d values: %s", response.Status, len(got.Data.Result), got.Error)
	}
	seconds, isNumber := got.Data.Result[0].Value[0].(float64)
	text, isText := got.Data.Result[0].Value[1].(string)
	value, err = strconv.ParseFloat(text, 64)
	if !isNumber || !isText || err != nil || math.IsNaN(value) || math.IsInf(value, 0) {
		return 0, at, fmt.Errorf("expected a number of Prometheus, got %v", got.Data.Result[0].Value)
	}
	return value, time.UnixMilli(int64(seconds * 1000)), nil
}
