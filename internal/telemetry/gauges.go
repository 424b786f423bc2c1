package telemetry

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
)

// mostOfEach is how many series of one gauge an object has at most, and mostOfLabel how many bytes
// the value of a label. Any client that may write an object can put any number of conditions and
// failed machines of any size there.
const (
	mostOfEach  = 64
	mostOfLabel = 256
)

// Gauges are metrics of the objects of a kind. They are computed at each scrape from the objects in
// the cache, so that a deleted object has none.
type Gauges[T metav1.Object] struct {
	acts   func() bool
	shown  func() []T
	gauges []Gauge[T]
}

// Gauge is one of all objects together, or one that each object has some of, with the labels beyond
// its name and namespace. Create one with OfAll, OfGroups, CountOfGroups, OfEach or Number.
type Gauge[T metav1.Object] struct {
	name        string
	kind        prometheus.ValueType
	description *prometheus.Desc
	ofAll       func(all []T, report Measure)
	ofEach      func(obj T, report Measure)
}

// Measure reports a value, with the labels that the gauge has beyond name and namespace.
type Measure func(value float64, labels ...string)

// NewGauges creates gauges of what shown returns. While acts returns false another process may be
// responsible for the objects, and no gauge is emitted.
func NewGauges[T metav1.Object](acts func() bool, shown func() []T, gauges ...Gauge[T]) *Gauges[T] {
	return &Gauges[T]{acts: acts, shown: shown, gauges: gauges}
}

// OfAll is a gauge of all objects together.
func OfAll[T metav1.Object](name, help string, of func(all []T) float64) Gauge[T] {
	return OfGroups(name, help, func(all []T, report Measure) { report(of(all)) })
}

// OfGroups is a gauge of groups of all objects, which its labels identify. The caller bounds their
// number, and reports each once.
func OfGroups[T metav1.Object](name, help string, report func(all []T, report Measure), labels ...string) Gauge[T] {
	return Gauge[T]{name: name, kind: prometheus.GaugeValue, description: prometheus.NewDesc(name, help, labels, nil), ofAll: report}
}

// CountOfGroups is OfGroups for a counter.
func CountOfGroups[T metav1.Object](name, help string, report func(all []T, report Measure), labels ...string) Gauge[T] {
	g := OfGroups(name, help, report, labels...)
	g.kind = prometheus.CounterValue
	return g
}

// OfEach is a gauge that each object may have several of. At most mostOfEach of them are emitted,
// each once.
func OfEach[T metav1.Object](name, help string, report func(obj T, report Measure), labels ...string) Gauge[T] {
	description := prometheus.NewDesc(name, help, append([]string{"name", "namespace"}, labels...), nil)
	return Gauge[T]{name: name, kind: prometheus.GaugeValue, description: description, ofEach: report}
}

// Number is a gauge that each object has one of.
func Number[T metav1.Object](name, help string, of func(obj T) int32) Gauge[T] {
	return OfEach(name, help, func(obj T, report Measure) { report(float64(of(obj))) })
}

// Describe is prometheus.Collector's.
func (g *Gauges[T]) Describe(descriptions chan<- *prometheus.Desc) {
	for _, gauge := range g.gauges {
		descriptions <- gauge.description
	}
}

// Collect is prometheus.Collector's.
func (g *Gauges[T]) Collect(metrics chan<- prometheus.Metric) {
	if !g.acts() {
		return
	}
	all := g.shown()
	for _, gauge := range g.gauges {
		if gauge.ofAll != nil {
			gauge.ofAll(all, func(value float64, labels ...string) { gauge.emit(metrics, value, bound(labels)) })
			continue
		}
		for _, obj := range all {
			gauge.emitEach(metrics, obj)
		}
	}
}

// emitEach emits the series of one object, each once: a duplicate would fail the whole scrape.
func (g *Gauge[T]) emitEach(metrics chan<- prometheus.Metric, obj T) {
	var emitted [][]string
	g.ofEach(obj, func(value float64, labels ...string) {
		bound(labels)
		isKnown := slices.ContainsFunc(emitted, func(known []string) bool { return slices.Equal(known, labels) })
		if isKnown || len(emitted) == mostOfEach {
			return
		}
		emitted = append(emitted, labels)
		g.emit(metrics, value, append([]string{obj.GetName(), obj.GetNamespace()}, labels...))
	})
}

func (g *Gauge[T]) emit(metrics chan<- prometheus.Metric, value float64, labels []string) {
	metrics <- prometheus.MustNewConstMetric(g.description, g.kind, value, labels...)
}

// bound cuts the values of labels to mostOfLabel. Prometheus' library accepts nothing but UTF-8.
func bound(labels []string) []string {
	for i, label := range labels {
		labels[i] = strings.ToValidUTF8(bounded.Text(label, mostOfLabel), "?")
	}
	return labels
}

// EmitCondition emits a condition as a number: 1 is True, 0 False, 2 Unknown.
func EmitCondition(report Measure, condition string, status corev1.ConditionStatus) {
	values := map[corev1.ConditionStatus]float64{corev1.ConditionTrue: 1, corev1.ConditionFalse: 0, corev1.ConditionUnknown: 2}
	if value, known := values[status]; known {
		report(value, condition)
	}
}

// FailedMachineLabels are those of a machine whose last operation has failed.
func FailedMachineLabels() []string {
	return []string{
		"failed_machine_name", "failed_machine_provider_id", "failed_machine_owner_ref",
		"failed_machine_last_operation_state", "failed_machine_last_operation_machine_operation_type",
	}
}

// EmitFailed emits a machine whose last operation has failed.
func EmitFailed(report Measure, m *v1alpha1.MachineSummary) {
	report(1, m.Name, m.ProviderID, m.OwnerRef, string(m.LastOperation.State), string(m.LastOperation.Type))
}
