package manifests

import (
	_ "embed"
	"strings"
	"time"
)

var (
	//go:embed control.yaml
	control []byte
	//go:embed target.yaml
	target []byte
	//go:embed nodes.yaml
	nodes string
	//go:embed member.yaml
	member string
	//go:embed fleet-control.yaml
	fleetControl []byte
	//go:embed fleet-landscape.yaml
	fleetLandscape []byte
	//go:embed fleet-target.yaml
	fleetTarget []byte
)

// FleetNamespace is the namespace of the fleet in the control cluster.
const FleetNamespace = "machine-controller-fleet"

// Control is applied where the Machine objects are, without the access of a fleet.
func Control() []byte { return control }

// Target is the same where the machines join as Nodes. It may be the same cluster.
func Target() []byte { return target }

// FleetControl is the access of a fleet where the Machine objects are.
func FleetControl() []byte { return fleetControl }

// FleetLandscape is the same where each target cluster belongs to a namespace. What it grants in
// a namespace, Member binds.
func FleetLandscape() []byte { return fleetLandscape }

// FleetTarget is the access of a fleet where the machines join as Nodes.
func FleetTarget() []byte { return fleetTarget }

// Member is applied where the Machine objects are, for a target cluster that has a namespace of its
// own, by its name and the URL of its API server.
func Member(name, server string) []byte {
	return []byte(strings.NewReplacer("{{NAME}}", name, "{{SERVER}}", server).Replace(member))
}

// Nodes is applied where the lab has Nodes that belong to no machine: their bootstrap token, until
// it expires.
func Nodes(tokenID, tokenSecret string, expiration time.Time) []byte {
	return []byte(strings.NewReplacer(
		"{{ID}}", tokenID, "{{SECRET}}", tokenSecret, "{{EXPIRATION}}", expiration.UTC().Format(time.RFC3339),
	).Replace(nodes))
}
