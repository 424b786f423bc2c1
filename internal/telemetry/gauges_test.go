package telemetry

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

func always() bool { return true }

// gathered returns the series of gauges. Errors: what fails a scrape.
func gathered(t *testing.T, collector prometheus.Collector) (series []*dto.Metric) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		series = append(series, family.GetMetric()...)
	}
	return series
}

// Any client that may write the status of a machine can put anything there.
func TestHostileObjectHasBoundedSeries(t *testing.T) {
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "n"}}
	add := func(condition string) {
		m.Status.Conditions = append(m.Status.Conditions, corev1.NodeCondition{
			Type: corev1.NodeConditionType(condition), Status: corev1.ConditionTrue,
		})
	}
	long := strings.Repeat("x", 1<<20)
	// The last two are equal once they are cut.
	for _, condition := range []string{"Ready", "Ready", "no UTF-8: \xff", "a\nb\"\\", "", long + "1", long + "2"} {
		add(condition)
	}
	for i := range 10_000 {
		add(fmt.Sprint("Created", i))
	}
	all := func() []*v1alpha1.Machine { return []*v1alpha1.Machine{m} }
	series := gathered(t, NewGauges(always, all, OfEach("g", "h", func(m *v1alpha1.Machine, report Measure) {
		for _, c := range m.Status.Conditions {
			EmitCondition(report, string(c.Type), c.Status)
		}
	}, "condition")))
	if len(series) != mostOfEach {
		t.Errorf("%d series of one object, want %d", len(series), mostOfEach)
	}
	values := map[string]int{}
	for _, s := range series {
		for _, label := range s.GetLabel() {
			if len(label.GetValue()) > mostOfLabel {
				t.Errorf("a label of %d bytes, want at most %d", len(label.GetValue()), mostOfLabel)
			}
			if label.GetName() == "condition" {
				values[label.GetValue()]++
			}
		}
	}
	if values["Ready"] != 1 || values["no UTF-8: ?"] != 1 || values["a\nb\"\\"] != 1 || values[""] != 1 {
		t.Errorf("conditions %v", values)
	}
}

func TestGaugesGroupsAndCountersAreBounded(t *testing.T) {
	none := func() []*v1alpha1.Machine { return nil }
	gauges := NewGauges(always, none, CountOfGroups("failed", "h", func(_ []*v1alpha1.Machine, report Measure) {
		report(3, strings.Repeat("x", 1<<20), "a\xff")
	}, "zone", "place"), OfAll("items", "h", func(all []*v1alpha1.Machine) float64 { return float64(len(all)) }))
	series := gathered(t, gauges)
	if len(series) != 2 || series[0].GetCounter().GetValue() != 3 || series[1].GetGauge() == nil {
		t.Fatalf("series %v, want a counter and a gauge", series)
	}
	for _, label := range series[0].GetLabel() {
		if len(label.GetValue()) > mostOfLabel {
			t.Errorf("a label of %d bytes, want at most %d", len(label.GetValue()), mostOfLabel)
		}
	}
}

func TestProcessThatMayNotActHasNoSeries(t *testing.T) {
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "n"}}
	all := func() []*v1alpha1.Machine { return []*v1alpha1.Machine{m} }
	gauge := Number("g", "h", func(*v1alpha1.Machine) int32 { return 1 })
	for acts, want := range map[bool]int{true: 1, false: 0} {
		if got := testutil.CollectAndCount(NewGauges(func() bool { return acts }, all, gauge)); got != want {
			t.Errorf("acts: %t: %d series, want %d", acts, got, want)
		}
	}
}

func TestOnlyNamedMetricsByMachineAreAllowed(t *testing.T) {
	gauges := func() (all []Gauge[*v1alpha1.Machine]) {
		for _, name := range append(SeriesByMachine(), "mcm_machine_items_total") {
			all = append(all, Number(name, "h", func(*v1alpha1.Machine) int32 { return 1 }))
		}
		return all
	}
	for _, tc := range []struct{ allowed, want []string }{
		{nil, []string{"mcm_machine_items_total"}},
		{[]string{MachinePhase}, []string{MachinePhase, "mcm_machine_items_total"}},
		{SeriesByMachine(), append(SeriesByMachine(), "mcm_machine_items_total")},
	} {
		var got []string
		for _, gauge := range Allowed(tc.allowed, gauges()) {
			got = append(got, gauge.name)
		}
		if fmt.Sprint(got) != fmt.Sprint(tc.want) {
			t.Errorf("with %v: %v, want %v", tc.allowed, got, tc.want)
		}
	}
}

func TestNamesBeyondTheBoundAreOther(t *testing.T) {
	names := NewNames(2)
	for _, tc := range []struct{ name, want string }{{"a", "a"}, {"b", "b"}, {"c", OtherName}, {"a", "a"}} {
		if got := names.Name(tc.name); got != tc.want {
			t.Errorf("%s is %s, want %s", tc.name, got, tc.want)
		}
	}
}
