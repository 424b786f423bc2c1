package main

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/buildinfo"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// newVersionCommand returns the command that prints the build, as --version does.
func newVersionCommand(build buildinfo.Info) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print version, commit, date of the commit, and Go's version",
		Long:  "Print version, commit, date of the commit, and Go's version. What was not recorded when the binary\nwas built is " + buildinfo.Unknown + ".",
		Args:  cobra.NoArgs,
		Run:   func(cmd *cobra.Command, _ []string) { fmt.Fprintln(cmd.OutOrStdout(), build) },
	}
}

// registerProcess registers the metrics of the process. A process has one set of them.
func registerProcess(registerer prometheus.Registerer, build buildinfo.Info) {
	registerer.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), newBuildInfo(build))
	telemetry.RegisterRESTClient(registerer)
}

// newBuildInfo returns the metric of the build. Its value is always 1; its labels join it to other metrics of the replica.
func newBuildInfo(build buildinfo.Info) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "mcf_build_info", Help: "Always 1; the labels are the version, the commit and the version of Go that the binary was built from.",
		ConstLabels: prometheus.Labels{"version": build.Version, "commit": build.Commit, "go_version": build.Go},
	})
	g.Set(1)
	return g
}
