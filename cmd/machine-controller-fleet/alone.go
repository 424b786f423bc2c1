package main

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/alone"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/label"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/ring"
	"github.com/machine-controller-fleet/machine-controller-fleet/telemetry"
)

// newAlone wires what keeps the fleet out of namespaces that others serve.
func newAlone(o options, f *fleet, s *slots) (*alone.Alone, error) {
	byNamespace, err := ring.NewSlots(s.spread.Count(), ring.Namespace)
	if err != nil {
		return nil, err
	}
	recorder := f.recorder(v1alpha1.EventSourceMachineDeployment)
	return alone.New(alone.Config{
		Client: f.control, Metadata: f.metadata, Namespace: o.namespace, Fleet: fleetIdentity(o.fleet.namespace, o.fleet.name),
		SlotOf: func(namespace string) int { return byNamespace.Of(namespace, "") },
		Gate:   shard.NewGate(f.session.fence, func(key alone.Key) (int, bool) { return key.Slot, true }),
		Changed: func(namespace string) {
			s.labeler.NamespaceChanged(namespace)
			s.lookAtClasses()
		},
		Refused: func(namespace, other string) { s.refused(recorder, namespace, other) },
		Clock:   clock.RealClock{}, Metrics: f.metrics, Tracer: f.tracer,
	})
}

// fleetIdentity is the holderIdentity of a fleet on the Leases of Machine Controller Manager.
func fleetIdentity(namespace, fleet string) string {
	return "machine-controller-fleet/" + namespace + "/" + fleet
}

// refused tells the MachineDeployments of our slots who keeps us out of their namespace.
func (s *slots) refused(recorder events.EventRecorder, namespace, other string) {
	klog.Background().Info("The namespace is not served, another holds the Leases there", "namespace", namespace, "holder", other)
	refs := s.strays.Deployments(namespace)
	for _, d := range s.view.Deployments.In(namespace) {
		refs = append(refs, corev1.ObjectReference{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: label.Deployment.String(), Namespace: d.Namespace, Name: d.Name, UID: d.UID,
		})
	}
	for i := range refs {
		if s.fence.Holds(s.spread.Of(refs[i].Namespace, refs[i].Name)) {
			recorder.Eventf(&refs[i], nil, corev1.EventTypeWarning, v1alpha1.EventNotAlone, "Reconcile", "%s", telemetry.Note(
				"The namespace is not served: "+other+" holds the Leases "+v1alpha1.LeaseManager+" and "+v1alpha1.LeaseMachineController+
					" there; stop it and wait 15 s, or keep the fleet out with --namespace"))
		}
	}
}
