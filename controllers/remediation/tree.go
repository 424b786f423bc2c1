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
	cluster, err := t.targets.For(m.Namespace)
	node, _ := boundNode(m, cluster)
	return t.scopeWith(m, cluster, err, node)
}

// scopeWith is scopeOf with what was found before: what the namespace's target cluster is, and the
// Node that is bound to the machine, nil for none.
func (t *tree) scopeWith(m *v1alpha1.Machine, cluster *target.Cluster, err error, node *corev1.Node) disruption.Scope {
	scope := disruption.Scope{}
	switch {
	case err != nil:
		scope.Target = m.Namespace // only a cluster of one namespace is not available
	case cluster != nil:
		scope.Target = cluster.Name
	}
	if node != nil {
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

// boundNode returns the Node in a target cluster, nil for none, that is bound to a machine. A Node
// that a machine names and that is not bound to it may belong to any machine.
func boundNode(m *v1alpha1.Machine, cluster *target.Cluster) (node *corev1.Node, known bool) {
	if cluster == nil {
		return nil, false
	}
	node, known = cluster.Nodes.Get(types.NamespacedName{Name: m.Labels[v1alpha1.LabelNode]})
	if !known || nodeowner.Relate(m, node) != nodeowner.Own {
		return nil, false
	}
	return node, true
}

// count counts one machine, in its scope. Of a target cluster that is being connected to, as after
// a hand-over, Nodes are not known yet: its machines count by what they state. Otherwise two that
// are not Ready would open its circuit breaker, because no other one would count. Nothing else is
// decided by it: such a cluster is that of one namespace, whose machines wait.
func (t *tree) count(m *v1alpha1.Machine, now time.Time) (scope disruption.Scope, n disruption.Count) {
	cluster, err := t.targets.For(m.Namespace)
	node, hasNode := boundNode(m, cluster)
	if n = disruption.Of(m, hasNode || isPending(err), now); n == (disruption.Count{}) {
		return scope, n
	}
	return t.scopeWith(m, cluster, err, node), n
}

// isPending reports whether the error is that of a target cluster that is being connected to.
func isPending(err error) bool {
	unavailable, is := errors.AsType[*target.UnavailableError](err)
	return is && unavailable.Pending
}
