package replica

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/fence"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/namespacelease"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/namespaceswitch"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// newNamespaceLeases wires the exclusion of namespaces that other managers serve.
func newNamespaceLeases(d *deps, s *slots) (*namespacelease.NamespaceLeases, error) {
	byNamespace, err := assignment.NewSpread(s.spread.Count(), assignment.ByNamespace)
	if err != nil {
		return nil, err
	}
	reporter := &namespacelease.Reporter{
		Events: d.recorder(v1alpha1.EventSourceMachineDeployment), Holds: d.session.fence.Holds, Roots: s.roots, SlotOf: s.spread.Of,
	}
	return namespacelease.New(namespacelease.Config{
		Client: d.control, Metadata: d.metadata, Namespace: d.o.Namespace, Fleet: FleetIdentity(d.o.Fleet.Namespace, d.o.Fleet.Name),
		SlotOf: func(namespace string) int { return byNamespace.Of(namespace, "") },
		Gate: namespaceswitch.Guard(s.switches,
			fence.NewGate(d.session.fence, func(key namespacelease.Key) (int, bool) { return key.Slot, true }),
			func(key namespacelease.Key) string { return key.Namespace }),
		Refused: reporter.Refused,
		Clock:   clock.RealClock{}, Metrics: d.metrics, Tracer: d.tracer,
	})
}

// FleetIdentity is the holderIdentity of a fleet on the Leases of Machine Controller Manager.
func FleetIdentity(namespace, fleet string) string {
	return "machine-controller-fleet/" + namespace + "/" + fleet
}

// roots returns references to the roots of a namespace that this replica has cached: those in its
// slots, and those in none.
func (s *slots) roots(namespace string) []corev1.ObjectReference {
	refs := s.unlabeled.Roots(namespace)
	refs = append(refs, rootsAmong(policy.Deployment, s.view.Deployments.In(namespace))...)
	refs = append(refs, rootsAmong(policy.Set, s.view.Sets.In(namespace))...)
	return append(refs, rootsAmong(policy.Machine, s.view.Machines.In(namespace))...)
}

// countRoots returns how many roots a slot has whose objects are cached.
func (s *slots) countRoots(slot int) int {
	return len(rootsAmong(policy.Deployment, s.view.Deployments.Of(slot))) + len(rootsAmong(policy.Set, s.view.Sets.Of(slot))) +
		len(rootsAmong(policy.Machine, s.view.Machines.Of(slot)))
}

// rootsAmong returns references to those objects that have no controller.
func rootsAmong[T metav1.Object](kind policy.Kind, objects []T) (refs []corev1.ObjectReference) {
	for _, o := range objects {
		if metav1.GetControllerOf(o) == nil {
			refs = append(refs, policy.Of(kind, o).Ref())
		}
	}
	return refs
}
