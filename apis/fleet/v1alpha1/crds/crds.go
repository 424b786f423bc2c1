// Package crds carries the CustomResourceDefinitions of fleet.machine.sapcloud.io/v1alpha1,
// generated from the Go types next to it, so that a program can install them without having the
// repository at hand.
package crds

import "embed"

// FS holds one YAML file for each kind.
//
//go:embed *.yaml
var FS embed.FS
