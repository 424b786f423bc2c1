package manifests

import (
	"bytes"
	_ "embed"
)

var (
	//go:embed control.yaml
	control []byte
	//go:embed target.yaml
	target []byte
	//go:embed fleet-control.yaml
	fleetControl []byte
	//go:embed fleet-target.yaml
	fleetTarget []byte
)

// FleetNamespace is the namespace of the fleet in the control cluster.
const FleetNamespace = "machine-controller-fleet"

// Control is applied where the Machine objects are.
func Control() []byte { return join(control, fleetControl) }

// Target is applied where the machines join as Nodes. It may be the same cluster.
func Target() []byte { return join(target, fleetTarget) }

func join(streams ...[]byte) []byte { return bytes.Join(streams, []byte("\n---\n")) }
