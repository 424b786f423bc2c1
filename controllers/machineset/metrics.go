package machineset

import (
	"fmt"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objects"
)

// Collector returns the metrics of MachineSets that dashboards know from Machine Controller Manager. They are worked out at
// each scrape from the sets that are this process's, so that a set that is gone, or another's by now, has none.
func (c *Controller) Collector() prometheus.Collector {
	return &collector{view: c.cfg.View, stale: c.stale, gauges: gauges()}
}

// newStale makes the counter of machines that were replaced for their health.
func newStale() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Name: "mcm_machine_stale_machines_total", Help: "Failed machines that were deleted because their health had timed out.",
	})
}

// isStale says that the machine has failed for its health.
func isStale(m *v1alpha1.Machine) bool {
	return m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed && m.Status.LastOperation.Type == v1alpha1.MachineOperationHealthCheck
}

type collector struct {
	view   *objects.View
	stale  prometheus.Counter
	gauges []gauge
}

// Describe is prometheus.Collector's.
func (c *collector) Describe(descriptions chan<- *prometheus.Desc) {
	c.stale.Describe(descriptions)
	for _, g := range c.gauges {
		descriptions <- g.description
	}
}

// Collect is prometheus.Collector's.
func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	c.stale.Collect(metrics)
	sets := c.view.Sets.All()
	for _, g := range c.gauges {
		if g.ofAll != nil {
			metrics <- prometheus.MustNewConstMetric(g.description, prometheus.GaugeValue, g.ofAll(sets))
			continue
		}
		for _, set := range sets {
			told := map[string]bool{} // twice the same would fail the whole scrape, and a status may have been written by anybody
			g.ofOne(set, func(value float64, labels ...string) {
				labels = append([]string{set.Name, set.Namespace}, labels...)
				text := fmt.Sprintf("%q", labels)
				if told[text] {
					return
				}
				told[text] = true
				metrics <- prometheus.MustNewConstMetric(g.description, prometheus.GaugeValue, value, labels...)
			})
		}
	}
}

// gauge is one of all sets together, or one that each set has some of, told with the labels beyond its name and namespace.
type gauge struct {
	description *prometheus.Desc
	ofAll       func(sets []*v1alpha1.MachineSet) float64
	ofOne       func(set *v1alpha1.MachineSet, tell func(value float64, labels ...string))
}

func gauges() []gauge {
	return []gauge{
		{
			description: prometheus.NewDesc("mcm_machine_set_items_total", "MachineSets.", nil, nil),
			ofAll:       func(sets []*v1alpha1.MachineSet) float64 { return float64(len(sets)) },
		},
		ofEach("mcm_machine_set_info", "A MachineSet, when it was made, and the class of its template.", tellInfo,
			"createdAt", "spec_machine_class_api_group", "spec_machine_class_kind", "spec_machine_class_name"),
		number("mcm_machine_set_info_spec_replicas", "Machines that are wanted.",
			func(set *v1alpha1.MachineSet) int32 { return set.Spec.Replicas }),
		number("mcm_machine_set_info_spec_min_ready_seconds", "Seconds for which a machine has to be ready, where that counts.",
			func(set *v1alpha1.MachineSet) int32 { return set.Spec.MinReadySeconds }),
		ofEach("mcm_machine_set_status_condition", "A condition: 1 is True, 0 False, 2 Unknown.", tellConditions, "condition"),
		number("mcm_machine_set_status_available_replicas", "Machines that are available.",
			func(set *v1alpha1.MachineSet) int32 { return set.Status.AvailableReplicas }),
		number("mcm_machine_set_status_fully_labelled_replicas", "Machines with all labels of the template.",
			func(set *v1alpha1.MachineSet) int32 { return set.Status.FullyLabeledReplicas }),
		number("mcm_machine_set_status_ready_replicas", "Machines that run.",
			func(set *v1alpha1.MachineSet) int32 { return set.Status.ReadyReplicas }),
		number("mcm_machine_set_status_replicas", "Machines there are.",
			func(set *v1alpha1.MachineSet) int32 { return set.Status.Replicas }),
		ofEach("mcm_machine_set_failed_machines", "A machine whose last operation failed.", tellFailed,
			"failed_machine_name", "failed_machine_provider_id", "failed_machine_owner_ref",
			"failed_machine_last_operation_state", "failed_machine_last_operation_machine_operation_type"),
	}
}

func ofEach(name, help string, tell func(set *v1alpha1.MachineSet, tell func(value float64, labels ...string)), labels ...string) gauge {
	return gauge{description: prometheus.NewDesc(name, help, append([]string{"name", "namespace"}, labels...), nil), ofOne: tell}
}

func number(name, help string, of func(set *v1alpha1.MachineSet) int32) gauge {
	return ofEach(name, help, func(set *v1alpha1.MachineSet, tell func(float64, ...string)) { tell(float64(of(set))) })
}

func tellInfo(set *v1alpha1.MachineSet, tell func(value float64, labels ...string)) {
	class := set.Spec.Template.Spec.Class
	tell(1, strconv.FormatInt(set.CreationTimestamp.Unix(), 10), class.APIGroup, class.Kind, class.Name)
}

func tellConditions(set *v1alpha1.MachineSet, tell func(value float64, labels ...string)) {
	values := map[corev1.ConditionStatus]float64{corev1.ConditionTrue: 1, corev1.ConditionFalse: 0, corev1.ConditionUnknown: 2}
	for _, c := range set.Status.Conditions {
		if value, known := values[c.Status]; known {
			tell(value, string(c.Type))
		}
	}
}

func tellFailed(set *v1alpha1.MachineSet, tell func(value float64, labels ...string)) {
	if set.Status.FailedMachines == nil {
		return
	}
	for _, m := range *set.Status.FailedMachines {
		tell(1, m.Name, m.ProviderID, m.OwnerRef, string(m.LastOperation.State), string(m.LastOperation.Type))
	}
}
