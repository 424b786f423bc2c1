package main

import (
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/flags"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// declareTraces declares which traces are exported although they are not sampled. Everything else about traces is in the OTEL_* variables.
func declareTraces(g *flags.Group, keep *telemetry.Keep) {
	g.Bool(&keep.Failed, "trace-keep-failed", false, "export also the traces of passes that failed, or in which a request or a call of a driver failed, of machines that are not sampled; then every pass is recorded, which costs about as much as sampling all")
	g.Duration(&keep.SlowerThan, "trace-keep-slower-than", 0, "export also the traces of passes that took longer, without their time in the queue, of machines that are not sampled; 0 exports none for that; costs the same as --trace-keep-failed", flags.OrZero)
}

// process returns what the traces of this process state about it.
func (o *options) process(version string) telemetry.Process {
	return telemetry.Process{
		Fleet: o.Fleet.Name, Replica: o.Name, Version: version, Namespace: o.Fleet.Namespace, PodUID: o.Fleet.PodUID, Keep: o.keepTraces,
	}
}
