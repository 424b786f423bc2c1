package target

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/kubeclient"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach"
)

// Resolver finds the target cluster of a namespace.
type Resolver interface {
	// For returns the target cluster of a namespace; nil without an error means that it has none.
	// Errors: *UnavailableError.
	For(namespace string) (*Cluster, error)
	// Open returns the target cluster of a namespace for live reads, until release is called: also in
	// a process that has nothing to do in the namespace, and so without Nodes in the cache. Nil
	// without an error means that there is none. It takes at most as long as ctx. Errors:
	// *UnavailableError.
	Open(ctx context.Context, namespace string) (cluster *Cluster, release func(), err error)
	// OnNodeChange calls f with each Node of a target cluster that appears (before is nil), changes,
	// or is removed (after is nil), as objectcache.Objects does. Call it before the first Node is
	// cached.
	OnNodeChange(f func(of *Cluster, before, after *corev1.Node))
}

// UnavailableError means that a namespace has a target cluster which this process cannot use at
// present. What needs the cluster waits.
type UnavailableError struct {
	Namespace string
	// Pending means that the cluster is being connected to, and that nothing is known to be wrong.
	Pending bool
	// Reason says what is missing and what to do, in a clause without a full stop. It contains no
	// credentials.
	Reason string
	// After is the time after which it may be available, if that is known; else 0.
	After time.Duration
}

// recheck is the time until what waits for a target cluster is tried again, if the cluster has not
// become available before.
const recheck = time.Minute

// Wait returns the time after which the cluster may be available, if no event reports that before.
func (e *UnavailableError) Wait() time.Duration { return cmp.Or(e.After, recheck) }

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("the target cluster of namespace %s is not available: %s", e.Namespace, e.Reason)
}

// Problem returns why the target cluster of a namespace is not available; "" if it is, or nothing
// is known to be wrong: then pending reports whether it is being connected to.
func Problem(r Resolver, namespace string) (problem string, pending bool) {
	_, err := r.For(namespace)
	unavailable, is := errors.AsType[*UnavailableError](err)
	if !is {
		return "", false
	}
	if unavailable.Pending {
		return "", true
	}
	return unavailable.Reason, false
}

// Cluster is one target cluster. Create one with New.
type Cluster struct {
	// Name distinguishes it from the fleet's other target clusters: the namespace of the control
	// cluster that it belongs to. It is "" where there is one only, whose Nodes carry the labels of
	// slots.
	Name string
	// Client for writes and live reads.
	Client kubeclient.Interface
	// Evict requests the eviction of a pod, once. An answer with a Retry-After is an error like
	// others.
	Evict func(ctx context.Context, eviction *policyv1.Eviction) error
	// Nodes in the cache of this process.
	Nodes *objectcache.Nodes
	// Written are the Nodes that this process has written and Nodes does not show yet.
	Written *patch.Latest[*corev1.Node]
	// ByPasses are the versions of Nodes that passes of machines have written: such a pass decides
	// again on what the API server has returned.
	ByPasses *patch.Versions
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

// indexByMachine is the index of Nodes by the UIDs of the machines that they are bound to.
const indexByMachine = "machine"

// New creates a Cluster whose Nodes the caller provides.
func New(client kubeclient.Interface) *Cluster {
	nodes := objectcache.New[*corev1.Node]()
	_ = nodes.AddIndex(indexByMachine, func(node *corev1.Node) []string { // it is empty
		ref, _ := v1alpha1.MachineOf(node)
		return []string{string(ref.UID)}
	})
	return &Cluster{
		Client: client, Evict: evictOnce(client), Nodes: nodes, Written: patch.NewLatest[*corev1.Node](), ByPasses: patch.NewVersions(),
	}
}

// NodesOf returns the Nodes in the cache that are bound to the machine with its UID, in no order.
func (c *Cluster) NodesOf(m *v1alpha1.Machine) []*corev1.Node {
	return c.Nodes.By(indexByMachine, string(m.UID))
}

// mostWritten is how much memory a Node takes at most that Wrote remembers. One takes some 10 kB
// when it is trimmed.
const mostWritten = 128 << 10

// Wrote remembers the Node that the API server returned for a write of a Node. What it returned of
// another Node is not remembered, and no Node that is too large: nothing would remove the first
// again, and the cache shows the second soon.
func (c *Cluster) Wrote(sent, returned *corev1.Node) {
	small := *returned
	objectcache.Trim(&small)
	if sent.UID == returned.UID && objectcache.SizeOf(&small) <= mostWritten {
		c.Written.Wrote(&small)
	}
}

// Key returns the name of an object of the cluster as a key that is unique among all target
// clusters.
func (c *Cluster) Key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: c.Name, Name: name}
}

// Serves reports whether the target cluster of a namespace is this one, and available.
func (c *Cluster) Serves(r Resolver, namespace string) bool {
	of, err := r.For(namespace)
	return err == nil && of == c
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
	// SwitchedOff returns the last time in which the namespace of an object was switched off, as an
	// outage; nil means that there was none.
	SwitchedOff func(namespace string) reach.Fact
}

// Of returns what is known of the API servers that decisions about an object depend on, as Under
// does, of the time in which no replica held its slot, and of that in which its namespace was
// switched off.
func (s Servers) Of(object metav1.Object, cluster *Cluster) reach.Fact {
	all := s.Under(cluster)
	if slot := object.GetLabels()[v1alpha1.LabelSlot]; s.UnservedSlot != nil && slot != "" {
		all = reach.Both(all, s.UnservedSlot(slot))
	}
	if s.SwitchedOff != nil {
		all = reach.Both(all, s.SwitchedOff(object.GetNamespace()))
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

// Open returns the cluster.
func (s Single) Open(context.Context, string) (*Cluster, func(), error) {
	return s.Cluster, func() {}, nil
}

// OnNodeChange registers a function for Nodes of the cluster.
func (s Single) OnNodeChange(f func(of *Cluster, before, after *corev1.Node)) {
	s.Cluster.Nodes.OnChange(func(before, after *corev1.Node) { f(s.Cluster, before, after) })
}
