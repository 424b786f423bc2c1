// Package crds carries the CustomResourceDefinitions of machine.sapcloud.io/v1alpha1, generated
// from the Go types next to it, so that a program can install them without having the repository at
// hand.
//
// What they check, and what they need of the API server, is described in the comment of package
// v1alpha1.
package crds

import "embed"

// FS holds one YAML file for each kind.
//
//go:embed *.yaml
var FS embed.FS
