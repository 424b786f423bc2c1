package simulation

import (
	"fmt"
	"math"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// anyLease returns the name of an existing Lease.
func (w *world) anyLease() string {
	all := sorted(w.api.leases)
	if len(all) == 0 {
		return ""
	}
	return all[w.random.IntN(len(all))].Name
}

func (w *world) deleteLease() {
	if name := w.anyLease(); name != "" && !w.api.unavailable() {
		w.report("a user deletes %s", name)
		w.checker.tampered[name] = true
		w.api.remove(name)
	}
}

// editLease changes what users may change.
func (w *world) editLease() {
	name := w.anyLease()
	if name == "" || w.api.unavailable() {
		return
	}
	w.checker.tampered[name] = true
	w.api.edit(name, func(l *coordinationv1.Lease) {
		switch w.random.IntN(6) {
		case 0:
			renewed := metav1.NewMicroTime(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))
			l.Spec.RenewTime = &renewed
		case 1:
			l.Spec.RenewTime, l.Spec.AcquireTime = nil, nil
		case 2:
			member.Annotate(l, v1alpha1.AnnotationAssignedReplica, fmt.Sprintf("r-%d", w.random.IntN(9)))
		case 3:
			l.Annotations = nil
		case 4:
			l.Labels = nil
		case 5:
			member.Annotate(l, v1alpha1.AnnotationWeights, "nonsense")
			member.Annotate(l, v1alpha1.AnnotationHome, "no-such-replica")
			member.Annotate(l, v1alpha1.AnnotationCapacity, "NaN")
		}
	})
}

// writeHolder writes into a slot Lease what only the fleet should write: a holder, which does not
// get the slot by that, or an epoch.
func (w *world) writeHolder() {
	slot := w.random.IntN(w.slots)
	name := member.SlotLeaseName(fleetName, slot, w.slots)
	if w.api.leases[name] == nil || w.api.unavailable() {
		return
	}
	w.checker.tampered[name] = true
	holder, epoch := "", int32(w.random.IntN(1000))
	if w.chance(3) {
		epoch = math.MaxInt32
	}
	switch p := w.anyProcess(); w.random.IntN(4) {
	case 0:
		holder = "by-hand" // no session can have this name
	case 1:
		holder = member.Identity("r-8", "zzzzz") // no session has this one
	case 2:
		if p != nil {
			holder = p.session
		}
	}
	w.api.edit(name, func(l *coordinationv1.Lease) {
		if w.chance(3) {
			l.Spec.LeaseTransitions = &epoch
			w.checker.epochs[string(l.UID)] = int64(epoch)
			return
		}
		if l.Spec.HolderIdentity = &holder; holder == "" {
			l.Spec.HolderIdentity = nil
		}
		w.checker.overwritten(slot, holder)
	})
}
