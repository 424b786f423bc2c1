package target

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// Resolver finds the target cluster of a namespace. A nil Cluster without an error means that it has none.
type Resolver interface {
	For(namespace string) (*Cluster, error)
}

// Cluster is one target cluster. Make one with New.
type Cluster struct {
	// Name distinguishes it from the fleet's other target clusters; "" where there is one only.
	Name string
	// Client for writes and live reads.
	Client kubernetes.Interface
	// Evict requests the eviction of a pod, once. An answer with a Retry-After is an error like others.
	Evict func(ctx context.Context, eviction *policyv1.Eviction) error
	// Nodes in the cache of this process.
	Nodes *objectcache.Nodes
}

// New makes a Cluster whose Nodes the caller provides.
func New(client kubernetes.Interface) *Cluster {
	return &Cluster{Client: client, Evict: evictOnce(client), Nodes: objectcache.New[*corev1.Node]()}
}

// Single resolves every namespace to the same cluster.
type Single struct{ Cluster *Cluster }

// For returns the cluster.
func (s Single) For(string) (*Cluster, error) { return s.Cluster, nil }
