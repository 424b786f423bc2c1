package main

import "github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"

// process returns what the traces of this process state about it.
func (o *options) process(version string) telemetry.Process {
	return telemetry.Process{
		Fleet: o.Fleet.Name, Replica: o.Name, Version: version, Namespace: o.Fleet.Namespace, PodUID: o.Fleet.PodUID,
	}
}
