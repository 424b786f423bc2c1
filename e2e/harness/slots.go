package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// The name of the lab's fleet, and the namespace of its Leases.
const (
	FleetName      = "fleet"
	FleetNamespace = "machine-controller-fleet"
)

// SlotLeases returns the Leases of all slots.
func (l *Lab) SlotLeases(ctx context.Context) ([]coordinationv1.Lease, error) {
	leases, err := l.fleetLeases(ctx)
	return slices.DeleteFunc(leases, func(lease coordinationv1.Lease) bool {
		return lease.Labels[v1alpha1.LabelLease] != v1alpha1.LeaseOfSlot
	}), err
}

// Holders returns the holder of each slot: session by name of the slot Lease, "" for none.
func (l *Lab) Holders(ctx context.Context) (map[string]string, error) {
	leases, err := l.SlotLeases(ctx)
	if err != nil {
		return nil, err
	}
	holders := map[string]string{}
	for _, lease := range leases {
		holders[lease.Name] = holder(lease)
	}
	return holders, nil
}

// leasesInterval is how often all Leases of a fleet are listed: hundreds of them, which costs an
// API server much.
const leasesInterval = 250 * time.Millisecond

// WaitHeld waits until so many slots are all held by sessions that live: their processes answer,
// may act, and report these slots. A session Lease does not show that its session was killed or
// paused a moment ago. A new fleet takes about 15 s for it, since a new slot Lease is in quarantine
// first.
func (l *Lab) WaitHeld(ctx context.Context, slots int) error {
	return EventuallyEvery(ctx, leasesInterval, fmt.Sprintf("all %d slots are held", slots), func(ctx context.Context) error {
		leases, err := l.fleetLeases(ctx)
		if err != nil {
			return err
		}
		if err := allHeld(leases, slots); err != nil {
			return err
		}
		views, err := l.EverySlots(ctx)
		if err != nil {
			return err
		}
		return allReport(leases, slots, views)
	})
}

// WaitAtRest waits until no slot is moving from one replica to another.
func (l *Lab) WaitAtRest(ctx context.Context) error {
	return EventuallyEvery(ctx, leasesInterval, "all slots are where they should be", func(ctx context.Context) error {
		leases, err := l.fleetLeases(ctx)
		if err != nil {
			return err
		}
		for _, lease := range leases {
			assigned := lease.Annotations[v1alpha1.AnnotationAssignedReplica]
			if replica, _, _ := strings.Cut(holder(lease), "_"); lease.Labels[v1alpha1.LabelLease] == v1alpha1.LeaseOfSlot && replica != assigned {
				return fmt.Errorf("%s is held by %q and assigned to %q", lease.Name, holder(lease), assigned)
			}
		}
		return nil
	})
}

func (l *Lab) fleetLeases(ctx context.Context) ([]coordinationv1.Lease, error) {
	list, err := l.Control.CoordinationV1().Leases(FleetNamespace).
		List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelFleet + "=" + FleetName})
	if err != nil {
		return nil, fmt.Errorf("list the fleet's Leases: %w", err)
	}
	return list.Items, nil
}

// allHeld returns an error that names the slots that are not held by a session that has its session
// Lease.
func allHeld(leases []coordinationv1.Lease, slots int) error {
	live := map[string]bool{}
	for _, lease := range leases {
		if lease.Labels[v1alpha1.LabelLease] == v1alpha1.LeaseOfSession {
			live[holder(lease)] = true
		}
	}
	delete(live, "") // a session Lease that was emptied
	held := 0
	var errs []error
	for _, lease := range leases {
		if lease.Labels[v1alpha1.LabelLease] != v1alpha1.LeaseOfSlot {
			continue
		}
		if session := holder(lease); live[session] {
			held++
		} else {
			errs = append(errs, fmt.Errorf("%s is held by %q, which is no live session", lease.Name, session))
		}
	}
	if held != slots {
		errs = append(errs, fmt.Errorf("expected %d slots held by %d live sessions, got %d", slots, len(live), held))
	}
	return errors.Join(errs...)
}

// allReport returns an error that names the slots whose holder does not report that it holds them
// and may act.
func allReport(leases []coordinationv1.Lease, slots int, views []SlotsView) error {
	bySession := map[string]SlotsView{}
	for _, view := range views {
		if !view.Suspended {
			bySession[view.Session] = view
		}
	}
	var errs []error
	for _, lease := range leases {
		slot, ok := member.SlotOfLease(FleetName, lease.Name, slots)
		if !ok {
			continue
		}
		view, acts := bySession[holder(lease)]
		if _, holds := view.Holds(slot); !holds {
			errs = append(errs,
				fmt.Errorf("%s names %s, which does not report that it holds it (it answers, and may act: %t)", lease.Name, holder(lease), acts))
		}
	}
	return errors.Join(errs...)
}

func holder(lease coordinationv1.Lease) string { return member.Holder(&lease) }
