package session

import (
	"context"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// rootsPage is how many objects one request of a list returns.
const rootsPage = 500

// Reporter emits Events about slots without a holder and about unfit replicas: its methods are
// Unowned and Unfit of Config. All fields but Namespace are required.
type Reporter struct {
	Settings protocol.Settings
	// Metadata lists roots in the control cluster.
	Metadata metadata.Interface
	// Namespace is the only one that is served; "" means all.
	Namespace string
	Events    events.EventRecorder
}

// ReportUnfit emits an Event on the session Lease of each replica that does not serve all of its
// slots.
func (r *Reporter) ReportUnfit(_ context.Context, troubles []Trouble) error {
	for _, t := range troubles {
		telemetry.EmitUnlogged(r.Events, &corev1.ObjectReference{
			APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease", Namespace: r.Settings.Namespace,
			Name: member.SessionLeaseName(r.Settings.Fleet, t.Replica),
		}, t.Event, t.Message)
	}
	return nil
}

// ReportUnowned emits an Event on each root of slots without a holder, or on none of them if a list
// fails. The leader calls it. Roots without a slot label are not among them: they count as
// unlabeled. Errors: those of the list.
func (r *Reporter) ReportUnowned(ctx context.Context, slots []int) error {
	roots, err := r.rootsOf(ctx, slots)
	if err != nil {
		return err
	}
	for _, slot := range slots {
		lease := r.Settings.Namespace + "/" + member.SlotLeaseName(r.Settings.Fleet, slot, r.Settings.Slots)
		for i := range roots[policy.Value(slot)] {
			telemetry.EmitUnlogged(r.Events, &roots[policy.Value(slot)][i], v1alpha1.EventSlotUnowned, "Slot "+policy.Value(slot)+
				" has had no holder for 30 s, so that this object is not reconciled; Lease "+lease+" names the replica assigned to it")
		}
	}
	return nil
}

// rootsOf lists the roots of slots, by slot label.
func (r *Reporter) rootsOf(ctx context.Context, slots []int) (map[string][]corev1.ObjectReference, error) {
	values := make([]string, len(slots))
	for i, slot := range slots {
		values[i] = policy.Value(slot)
	}
	roots := map[string][]corev1.ObjectReference{}
	selector := v1alpha1.LabelSlot + " in (" + strings.Join(values, ",") + ")"
	for _, kind := range []policy.Kind{policy.Deployment, policy.Set, policy.Machine} {
		list := r.Metadata.Resource(v1alpha1.SchemeGroupVersion.WithResource(kind.Resource())).Namespace(r.Namespace)
		options := metav1.ListOptions{LabelSelector: selector, Limit: rootsPage}
		err := decode.EachObject(ctx, "the "+kind.Resource()+" of slots without a holder", options, list.List,
			func(o *metav1.PartialObjectMetadata) {
				if metav1.GetControllerOf(o) == nil {
					slot := o.Labels[v1alpha1.LabelSlot]
					roots[slot] = append(roots[slot], policy.Of(kind, o).Ref())
				}
			})
		if err != nil {
			return nil, err
		}
	}
	return roots, nil
}
