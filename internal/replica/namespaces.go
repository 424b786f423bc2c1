package replica

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/namespaces"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/fence"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/namespacelease"
	leasepolicy "github.com/machine-controller-fleet/machine-controller-fleet/shard/namespacelease/policy"
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
		Events: d.recorder(v1alpha1.EventSourceMachineDeployment), Holds: d.session.fence.Holds, Roots: s.roots,
	}
	var selection func(namespace string) leasepolicy.Selection
	if d.o.NamespaceSelector != "" {
		selection = d.selection
	}
	return namespacelease.New(namespacelease.Config{
		Client: d.control, Metadata: d.metadata, Namespace: d.o.Namespace, Fleet: FleetIdentity(d.o.Fleet.Namespace, d.o.Fleet.Name),
		SlotOf:    func(namespace string) int { return byNamespace.Of(namespace, "") },
		Selection: selection,
		Gate: namespaceswitch.Guard(s.switches,
			fence.NewGate(d.session.fence, func(key namespacelease.Key) (int, bool) { return key.Slot, true }),
			func(key namespacelease.Key) string { return key.Namespace }),
		Refused: reporter.Refused,
		Clock:   clock.RealClock{}, Metrics: d.metrics, Tracer: d.tracer,
	})
}

// isSelected reports whether a namespace is known to be selected for this fleet.
func (d *deps) isSelected(namespace string) bool {
	return d.o.NamespaceSelector == "" || d.selection(namespace) == leasepolicy.Selected
}

// selection returns whether a namespace is selected for this fleet.
func (d *deps) selection(namespace string) leasepolicy.Selection {
	switch selected, known := d.namespaces.Selected(namespace); {
	case selected:
		return leasepolicy.Selected
	case known:
		return leasepolicy.NotSelected
	}
	return leasepolicy.Undetermined
}

// newNamespaces returns the Namespaces of the control cluster. Errors: an invalid selector, or one
// that a fleet cannot use that divides its work by MachineDeployment.
func newNamespaces(d *deps, spread assignment.Spread) (*namespaces.Namespaces, error) {
	selector, err := labels.Parse(d.o.NamespaceSelector)
	if err != nil {
		return nil, fmt.Errorf("selector of namespaces: expected a label selector, got %q: %w", d.o.NamespaceSelector, err)
	}
	if !selector.Empty() && spread.By() != assignment.ByNamespace {
		return nil, fmt.Errorf("selector of namespaces: expected work to be divided by %s, got %s; a namespace is left by one replica",
			assignment.ByNamespace, spread.By())
	}
	return namespaces.New(d.metadata, d.o.Namespace, selector)
}

// secretNamespaces returns the function that returns the namespaces with Secrets of classes in this
// replica's slots; nil where replicas may list those of all namespaces.
func (d *deps) secretNamespaces() func() []string {
	if !d.o.Targets.ByNamespace {
		return nil
	}
	return func() []string {
		return slices.DeleteFunc(d.slots.namespaces.Held(), func(namespace string) bool {
			return !d.session.fence.Holds(d.slots.spread.Of(namespace, ""))
		})
	}
}

// FleetIdentity is the holderIdentity of a fleet on the Leases of Machine Controller Manager.
func FleetIdentity(namespace, fleet string) string {
	return "machine-controller-fleet/" + namespace + "/" + fleet
}

// roots returns references to the roots of a namespace that this replica has cached and that are in
// a slot: by their label, or by their name if they have none.
func (s *slots) roots(namespace string, slot int) []corev1.ObjectReference {
	refs := slices.DeleteFunc(s.unlabeled.Roots(namespace), func(ref corev1.ObjectReference) bool {
		return s.spread.Of(ref.Namespace, ref.Name) != slot
	})
	refs = append(refs, rootsAmong(policy.Deployment, labeled(s.view.Deployments.In(namespace), slot))...)
	refs = append(refs, rootsAmong(policy.Set, labeled(s.view.Sets.In(namespace), slot))...)
	return append(refs, rootsAmong(policy.Machine, labeled(s.view.Machines.In(namespace), slot))...)
}

// labeled returns the objects that carry the label of a slot.
func labeled[T metav1.Object](objects []T, slot int) []T {
	return slices.DeleteFunc(objects, func(o T) bool { return o.GetLabels()[v1alpha1.LabelSlot] != policy.Value(slot) })
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
