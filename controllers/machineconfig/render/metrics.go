package render

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// Collectors return the metrics of this replica's pools, which pools returns; rendered returns how
// many RenderedMachineConfigs one has. While acts returns false the replica may have lost them
// without a notice, and reports none.
func Collectors(
	acts func() bool, pools func() []*v1alpha1.MachineConfigPool, rendered func(*v1alpha1.MachineConfigPool) int,
) []prometheus.Collector {
	type pool = *v1alpha1.MachineConfigPool
	return []prometheus.Collector{telemetry.NewGauges(acts, pools,
		telemetry.OfEach("mcf_machineconfigpool_render_degraded", "1 while no target can be rendered for the MachineConfigPool.",
			func(p pool, report telemetry.Measure) {
				degraded := 0.0
				if meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.PoolRenderDegraded) {
					degraded = 1
				}
				report(degraded)
			}),
		telemetry.Number("mcf_machineconfigpool_rendered_configs", "RenderedMachineConfigs of the MachineConfigPool.",
			func(p pool) int32 { return int32(rendered(p)) }),
	)}
}
