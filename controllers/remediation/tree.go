package remediation

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/nodeowner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
)

// tree finds the machines below a root and their scopes.
type tree struct {
	view    *objectcache.View
	targets target.Resolver
}

// members returns the machines of sets, without their scopes, and those that cannot be decoded.
func (t *tree) members(sets []*v1alpha1.MachineSet) (members []disruption.Member, undecodable []*v1alpha1.Machine) {
	for _, set := range sets {
		decoded, others := t.view.MachinesOf(set)
		for _, m := range decoded {
			members = append(members, disruption.Member{Machine: m})
		}
		undecodable = append(undecodable, others...)
	}
	return members, undecodable
}

// locate adds their scopes to machines. Only decisions under open circuit breakers need them, and
// to find the Nodes of all machines is most of the work of a pass.
func (t *tree) locate(members []disruption.Member) {
	for i := range members {
		members[i].Scope = t.scopeOf(members[i].Machine)
	}
}

// scopeOf returns the scope of a machine: the zone in the label of its Node, otherwise that of its
// class.
func (t *tree) scopeOf(m *v1alpha1.Machine) disruption.Scope {
	scope := disruption.Scope{}
	cluster, err := t.targets.For(m.Namespace)
	switch {
	case err != nil:
		scope.Target = m.Namespace // only a cluster of one namespace is not available
	case cluster != nil:
		scope.Target = cluster.Name
	}
	if node, known := t.nodeOf(m); known {
		scope.Zone = node.Labels[corev1.LabelTopologyZone]
	}
	if scope.Zone == "" {
		class, known := t.view.Classes.Get(types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.Class.Name})
		if known && class.NodeTemplate != nil {
			scope.Zone = disruption.Zone(class.NodeTemplate.Zone)
		}
	}
	return scope
}

// nodeOf returns the Node that is bound to a machine. A Node that a machine names and that is not
// bound to it may belong to any machine.
func (t *tree) nodeOf(m *v1alpha1.Machine) (node *corev1.Node, known bool) {
	cluster, _ := t.targets.For(m.Namespace) // nil with an error
	if cluster == nil {
		return nil, false
	}
	node, known = cluster.Nodes.Get(types.NamespacedName{Name: m.Labels[v1alpha1.LabelNode]})
	return node, known && nodeowner.Relate(m, node) == nodeowner.Own
}

// count counts one machine. Of a target cluster that is being connected to, as after a hand-over,
// Nodes are not known yet: its machines count by what they state. Otherwise two that are not Ready
// would open its circuit breaker, because no other one would count. Nothing else is decided by it:
// such a cluster is that of one namespace, whose machines wait.
func (t *tree) count(m *v1alpha1.Machine, now time.Time) disruption.Count {
	_, hasNode := t.nodeOf(m)
	return disruption.Of(m, hasNode || t.isPending(m.Namespace), now)
}

// isPending reports whether the target cluster of a namespace is being connected to.
func (t *tree) isPending(namespace string) bool {
	_, err := t.targets.For(namespace)
	unavailable, is := errors.AsType[*target.UnavailableError](err)
	return is && unavailable.Pending
}
