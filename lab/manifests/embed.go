package manifests

import _ "embed"

var (
	//go:embed control.yaml
	control []byte
	//go:embed target.yaml
	target []byte
)

// Control is applied where the Machine objects are.
func Control() []byte { return control }

// Target is applied where the machines join as Nodes. It may be the same cluster.
func Target() []byte { return target }
