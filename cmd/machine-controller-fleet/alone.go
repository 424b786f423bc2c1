package main

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/fence"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/namespacelease"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/ring"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
	"github.com/machine-controller-fleet/machine-controller-fleet/telemetry"
)

// newAlone wires what keeps the fleet out of namespaces that others serve.
func newAlone(o options, f *fleet, s *slots) (*namespacelease.NamespaceLeases, error) {
	byNamespace, err := ring.NewSlots(s.spread.Count(), ring.Namespace)
	if err != nil {
		return nil, err
	}
	recorder := f.recorder(v1alpha1.EventSourceMachineDeployment)
	return namespacelease.New(namespacelease.Config{
		Client: f.control, Metadata: f.metadata, Namespace: o.namespace, Fleet: fleetIdentity(o.fleet.namespace, o.fleet.name),
		SlotOf: func(namespace string) int { return byNamespace.Of(namespace, "") },
		Gate:   fence.NewGate(f.session.fence, func(key namespacelease.Key) (int, bool) { return key.Slot, true }),
		Changed: func(namespace string) {
			s.labeler.NamespaceChanged(namespace)
			s.classes.NamespaceChanged(namespace)
			s.ofClasses.Opened()
		},
		Refused: func(refused namespacelease.Key, other string) { s.refused(recorder, refused, other) },
		Clock:   clock.RealClock{}, Metrics: f.metrics, Tracer: f.tracer,
	})
}

// fleetIdentity is the holderIdentity of a fleet on the Leases of Machine Controller Manager.
func fleetIdentity(namespace, fleet string) string {
	return "machine-controller-fleet/" + namespace + "/" + fleet
}

// refused tells the roots of a slot, if it is ours, who keeps us out of their namespace.
func (s *slots) refused(recorder events.EventRecorder, refused namespacelease.Key, other string) {
	if !s.fence.Holds(refused.Slot) {
		return
	}
	namespace := refused.Namespace
	klog.Background().Info("The namespace is not served, another holds the Leases there",
		"namespace", namespace, "slot", refused.Slot, "holder", other)
	refs := s.unlabeled.Roots(namespace)
	refs = append(refs, rootsAmong(policy.Deployment, s.view.Deployments.In(namespace))...)
	refs = append(refs, rootsAmong(policy.Set, s.view.Sets.In(namespace))...)
	refs = append(refs, rootsAmong(policy.Machine, s.view.Machines.In(namespace))...)
	for i := range refs {
		if s.spread.Of(refs[i].Namespace, refs[i].Name) == refused.Slot {
			telemetry.Emit(recorder, &refs[i], v1alpha1.EventNotAlone,
				"The namespace is not served: "+other+" holds the Leases "+v1alpha1.LeaseManager+" and "+v1alpha1.LeaseMachineController+
					" there; stop it and wait 15 s, or keep the fleet out with --namespace")
		}
	}
}

// rootsAmong returns references to those objects that have no controller.
func rootsAmong[T metav1.Object](kind policy.Kind, objects []T) (refs []corev1.ObjectReference) {
	for _, o := range objects {
		if metav1.GetControllerOf(o) == nil {
			refs = append(refs, rootRef(kind, o))
		}
	}
	return refs
}

func rootRef(kind policy.Kind, o metav1.Object) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kind.String(), Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(),
	}
}
