package target

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// None is for fleets without a target cluster: their VMs become no Nodes.
type None struct{}

// For returns nil.
func (None) For(string) (*Cluster, error) { return nil, nil } //nolint:nilnil // nil means that there is none, see Resolver

// Open returns nil.
func (None) Open(context.Context, string) (*Cluster, func(), error) { return nil, func() {}, nil }

// OnNodeChange does nothing.
func (None) OnNodeChange(func(of *Cluster, before, after *corev1.Node)) {}
