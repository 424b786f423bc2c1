package candidates

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
)

// Membership is which Nodes belong to which pool.
type Membership struct {
	// Of are the Nodes of each pool, by the pool's name, sorted by name.
	Of map[string][]*corev1.Node
	// Conflicts are the names of the Nodes that a pool selects and does not have because another one
	// has the same right to them, sorted.
	Conflicts map[string][]string
}

// Members resolves which pool each Node belongs to. The Nodes of machines that a pool refers to are
// its own: referring has the names of these pools by the name of the Node. Of several the oldest
// has them, and the others a conflict. All other Nodes belong to the pool of the highest priority
// whose nodeSelector matches; with two of them, to none, and both have a conflict. Nodes with
// Windows belong to no pool: the daemon does not run there.
func Members(pools []*v1alpha1.MachineConfigPool, nodes []*corev1.Node, referring map[string][]string) Membership {
	m := Membership{Of: map[string][]*corev1.Node{}, Conflicts: map[string][]string{}}
	selecting := selectors(pools)
	for _, node := range nodes {
		if node.Labels[corev1.LabelOSStable] == "windows" {
			continue
		}
		owner, others := resolve(pools, selecting, node, referring[node.Name])
		if owner != "" {
			m.Of[owner] = append(m.Of[owner], node)
		}
		for _, other := range others {
			m.Conflicts[other] = append(m.Conflicts[other], node.Name)
		}
	}
	for _, members := range m.Of {
		slices.SortFunc(members, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	}
	for _, names := range m.Conflicts {
		slices.Sort(names)
	}
	return m
}

// selectors returns the selectors of pools that have a valid one, by name. An empty one matches
// nothing.
func selectors(pools []*v1alpha1.MachineConfigPool) map[string]labels.Selector {
	all := map[string]labels.Selector{}
	for _, pool := range pools {
		if pool.Spec.MachineRef != nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(pool.Spec.NodeSelector)
		if err == nil && !selector.Empty() {
			all[pool.Name] = selector
		}
	}
	return all
}

// resolve returns the pool of a Node, "" for none, and the pools that have a conflict because of
// it.
func resolve(
	pools []*v1alpha1.MachineConfigPool, selecting map[string]labels.Selector, node *corev1.Node, referring []string,
) (owner string, others []string) {
	var byReference, bySelector []*v1alpha1.MachineConfigPool
	for _, pool := range pools {
		if slices.Contains(referring, pool.Name) {
			byReference = append(byReference, pool)
		}
		if selector, ok := selecting[pool.Name]; ok && selector.Matches(labels.Set(node.Labels)) {
			bySelector = append(bySelector, pool)
		}
	}
	switch {
	case len(byReference) > 0:
		slices.SortFunc(byReference, func(a, b *v1alpha1.MachineConfigPool) int {
			return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
		})
		return byReference[0].Name, names(byReference[1:])
	case len(bySelector) == 0:
		return "", nil
	}
	highest := slices.MaxFunc(bySelector, func(a, b *v1alpha1.MachineConfigPool) int { return cmp.Compare(a.Spec.Priority, b.Spec.Priority) })
	first := slices.DeleteFunc(bySelector, func(p *v1alpha1.MachineConfigPool) bool { return p.Spec.Priority < highest.Spec.Priority })
	if len(first) > 1 {
		return "", names(first)
	}
	return first[0].Name, nil
}

func names(pools []*v1alpha1.MachineConfigPool) (all []string) {
	for _, pool := range pools {
		all = append(all, pool.Name)
	}
	return all
}
