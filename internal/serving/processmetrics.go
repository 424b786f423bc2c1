package serving

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/buildinfo"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// RegisterProcess registers the metrics of the process. A process has one set of them.
func RegisterProcess(registerer prometheus.Registerer, build buildinfo.Info) {
	registerer.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), newBuildInfo(build))
	telemetry.RegisterRESTClient(registerer)
}

// newBuildInfo returns the metric of the build. Its value is always 1; its labels join it to other
// metrics of the replica.
func newBuildInfo(build buildinfo.Info) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "mcf_build_info", Help: "Always 1; the labels are the version, the commit and the version of Go that the binary was built from.",
		ConstLabels: prometheus.Labels{"version": build.Version, "commit": build.Commit, "go_version": build.Go},
	})
	g.Set(1)
	return g
}
