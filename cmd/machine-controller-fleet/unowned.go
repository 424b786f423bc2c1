package main

import (
	"context"
	"fmt"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/protocol"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
	"github.com/machine-controller-fleet/machine-controller-fleet/telemetry"
)

// rootsPage is how many objects one request of a list asks for.
const rootsPage = 500

// unowned emits Events on the roots of slots without a holder, so that users see why they are not reconciled.
type unowned struct {
	metadata  metadata.Interface
	namespace string // the only one that is served; "" means all
	events    events.EventRecorder
	// fleetNamespace is where the fleet's Leases are, and sessionLease names that of a replica.
	fleetNamespace string
	sessionLease   func(replica string) string
	// leaseOf names the Lease of a slot: <namespace>/<name>.
	leaseOf func(slot string) string
}

// reportUnfit emits an Event on the session Lease of each replica that cannot do its work.
func (u *unowned) reportUnfit(_ context.Context, unfit []protocol.SessionFacts) error {
	for _, s := range unfit {
		telemetry.Emit(u.events, &corev1.ObjectReference{
			APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease", Namespace: u.fleetNamespace, Name: u.sessionLease(s.Replica),
		}, v1alpha1.EventReplicaUnfit, "Replica "+s.Replica+" renews its Lease and cannot do its work: "+s.Fitness.Reason+
			"; its slots are assigned to replicas that can; check its log and its connections to both clusters")
	}
	return nil
}

func newUnowned(o options, f *fleet) *unowned {
	return &unowned{
		metadata: f.metadata, namespace: o.namespace, events: f.recorder(v1alpha1.EventSourceMachineDeployment),
		fleetNamespace: o.fleet.namespace,
		sessionLease:   func(replica string) string { return member.SessionLeaseName(o.fleet.name, replica) },
		leaseOf: func(slot string) string {
			number, _ := policy.Read(slot, o.fleet.slots)
			return o.fleet.namespace + "/" + member.SlotLeaseName(o.fleet.name, number, o.fleet.slots)
		},
	}
}

// report emits Events on the roots of slots, on all or none of them. It is for the leader; the metric of unlabeled objects
// covers roots without a slot label. Errors: the list.
func (u *unowned) report(ctx context.Context, slots []int) error {
	values := make([]string, len(slots))
	for i, slot := range slots {
		values[i] = policy.Value(slot)
	}
	roots := map[string][]corev1.ObjectReference{} // by slot label
	selector := v1alpha1.LabelSlot + " in (" + strings.Join(values, ",") + ")"
	for _, kind := range []policy.Kind{policy.Deployment, policy.Set, policy.Machine} {
		list := u.metadata.Resource(v1alpha1.SchemeGroupVersion.WithResource(kind.Resource())).Namespace(u.namespace)
		options := metav1.ListOptions{LabelSelector: selector, Limit: rootsPage}
		for {
			found, err := list.List(ctx, options)
			if err != nil {
				return fmt.Errorf("list the %s of slots without a holder: %w", kind.Resource(), err)
			}
			for i := range found.Items {
				if o := &found.Items[i]; metav1.GetControllerOf(o) == nil {
					slot := o.Labels[v1alpha1.LabelSlot]
					roots[slot] = append(roots[slot], rootRef(kind, o))
				}
			}
			if options.Continue = found.Continue; options.Continue == "" {
				break
			}
		}
	}
	for _, slot := range values {
		for i := range roots[slot] {
			telemetry.Emit(u.events, &roots[slot][i], v1alpha1.EventSlotUnowned, "Slot "+slot+" has had no holder"+
				" for 30 s, so this object is not reconciled; Lease "+u.leaseOf(slot)+" names the assigned replica")
		}
	}
	return nil
}
