package target

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach"
)

// Resolver finds the target cluster of a namespace. A nil Cluster without an error means that it
// has none.
type Resolver interface {
	For(namespace string) (*Cluster, error)
}

// Cluster is one target cluster. Create one with New.
type Cluster struct {
	// Name distinguishes it from the fleet's other target clusters; "" where there is one only.
	Name string
	// Client for writes and live reads.
	Client kubernetes.Interface
	// Evict requests the eviction of a pod, once. An answer with a Retry-After is an error like
	// others.
	Evict func(ctx context.Context, eviction *policyv1.Eviction) error
	// Nodes in the cache of this process.
	Nodes *objectcache.Nodes
	// Reach returns what this process knows of the cluster's API server; nil means that it is not
	// checked.
	Reach func() reach.Fact
	// Lead returns what Ahead returns; nil means 0.
	Lead func() time.Duration
}

// Ahead returns by how much the clock of the cluster, by which it sets times on its objects, is
// ahead of that of the control cluster, by which the fleet decides.
func (c *Cluster) Ahead() time.Duration {
	if c.Lead == nil {
		return 0
	}
	return c.Lead()
}

// New creates a Cluster whose Nodes the caller provides.
func New(client kubernetes.Interface) *Cluster {
	return &Cluster{Client: client, Evict: evictOnce(client), Nodes: objectcache.New[*corev1.Node]()}
}

// Servers are the API servers that decisions depend on: that of the control cluster, and those of
// target clusters.
type Servers struct {
	// Control returns what this process knows of the API server of the control cluster; nil means that
	// it is not checked.
	Control func() reach.Fact
	// Unserved returns the last time in which no replica of the fleet ran, as an outage; nil means
	// that there was none.
	Unserved func() reach.Fact
	// UnservedSlot returns the last time in which the slot of an object had no holder, as an outage;
	// nil means that there was none. slot is the value of its slot label.
	UnservedSlot func(slot string) reach.Fact
}

// Of returns what is known of the API servers that decisions about an object depend on, as Under
// does, and of the time in which no replica held its slot.
func (s Servers) Of(object metav1.Object, cluster *Cluster) reach.Fact {
	all := s.Under(cluster)
	if slot := object.GetLabels()[v1alpha1.LabelSlot]; s.UnservedSlot != nil && slot != "" {
		all = reach.Both(all, s.UnservedSlot(slot))
	}
	return all
}

// Under returns what is known of both API servers that decisions about machines of a target cluster
// depend on; cluster is nil where there is none. A time without a replica has the same consequences
// as one without an API server.
func (s Servers) Under(cluster *Cluster) reach.Fact {
	var control, target reach.Fact
	if s.Control != nil {
		control = s.Control()
	}
	if cluster != nil && cluster.Reach != nil {
		target = cluster.Reach()
	}
	both := reach.Both(control, target)
	if s.Unserved == nil {
		return both
	}
	return reach.Both(both, s.Unserved())
}

// Single resolves every namespace to the same cluster.
type Single struct{ Cluster *Cluster }

// For returns the cluster.
func (s Single) For(string) (*Cluster, error) { return s.Cluster, nil }
