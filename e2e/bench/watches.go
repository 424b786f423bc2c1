package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// slotted are the resources whose objects are in slots.
var slotted = []string{"machinedeployments", "machinesets", "machines", "nodes"}

// ownWatches waits until each replica watches the objects of its slots, and few others; the
// position precedes all watches.
func ownWatches(ctx context.Context, lab *harness.Lab, position harness.AuditPosition) error {
	ctx, cancel := context.WithTimeout(ctx, harness.Standstill)
	defer cancel()
	return harness.EventuallyEvery(ctx, 5*time.Second, "replicas watch what they hold", func(ctx context.Context) error {
		held, err := heldSlots(ctx, lab)
		if err != nil {
			return err
		}
		watches, err := lab.OpenWatches(position)
		if err != nil {
			return err
		}
		return onlyOwn(watches, held)
	})
}

// heldSlots returns the slots that each replica holds.
func heldSlots(ctx context.Context, lab *harness.Lab) (map[string]map[int]bool, error) {
	holders, err := lab.Holders(ctx)
	if err != nil {
		return nil, err
	}
	held := map[string]map[int]bool{}
	for lease, session := range holders {
		slot, err := strconv.Atoi(strings.TrimPrefix(lease, harness.FleetName+"-slot-"))
		if err != nil {
			return nil, fmt.Errorf("slot Lease %s: %w", lease, err)
		}
		replica, _, _ := strings.Cut(session, "_")
		if held[replica] == nil {
			held[replica] = map[int]bool{}
		}
		held[replica][slot] = true
	}
	return held, nil
}

// onlyOwn checks the watches that replicas have. Of each resource they have to select all slots
// that the replica holds, and the objects without a slot; less than a tenth may be slots that it
// has lost, because watches are not restarted for a few.
func onlyOwn(watches []harness.Request, held map[string]map[int]bool) error {
	type view struct{ replica, resource string }
	selects, unlabeled := map[view]map[int]bool{}, map[view]bool{}
	for _, w := range watches {
		if !w.IsFleet() || !slices.Contains(slotted, w.Resource) {
			continue
		}
		of := view{w.User, w.Resource}
		operator, some, err := selectedSlots(w.URI)
		switch {
		case err != nil:
			return fmt.Errorf("%s watches %s of others: %w: %s", w.User, w.Resource, err, w.URI)
		case operator == selection.In && selects[of] == nil:
			selects[of] = some
		case operator == selection.In:
			for slot := range some {
				selects[of][slot] = true
			}
		case operator == selection.NotIn && len(some) == slots:
			unlabeled[of] = true
		default:
			return fmt.Errorf("%s watches %s of others: %s", w.User, w.Resource, w.URI)
		}
	}
	var errs []error
	for replica, holds := range held {
		for _, resource := range slotted {
			of := view{replica, resource}
			missing, foreign := lacks(selects[of], holds), lacks(holds, selects[of])
			if missing > 0 || 10*foreign >= max(len(selects[of]), 1) || !unlabeled[of] {
				errs = append(errs, fmt.Errorf("%s holds %d slots, and watches %s of %d: %d objects of its slots are missing, %d are of others; "+
					"it watches objects without a slot: %t",
					replica, len(holds), resource, len(selects[of]), missing, foreign, unlabeled[of]))
			}
		}
	}
	return errors.Join(errs...)
}

// lacks counts the slots of all that are not in set.
func lacks(set, all map[int]bool) (n int) {
	for slot := range all {
		if !set[slot] {
			n++
		}
	}
	return n
}

// selectedSlots returns the slots that the selector of a watch of the fleet requires.
func selectedSlots(uri string) (operator selection.Operator, some map[int]bool, err error) {
	at, err := url.Parse(uri)
	if err != nil {
		return "", nil, err
	}
	requirements, err := labels.ParseToRequirements(at.Query().Get("labelSelector"))
	if err != nil {
		return "", nil, err
	}
	if len(requirements) != 1 || requirements[0].Key() != v1alpha1.LabelSlot {
		return "", nil, errors.New("it does not select by slots")
	}
	some = map[int]bool{}
	for value := range requirements[0].Values() {
		slot, err := strconv.Atoi(value)
		if err != nil || slot < 0 || slot >= slots {
			return "", nil, fmt.Errorf("expected a slot, got %q", value)
		}
		some[slot] = true
	}
	return requirements[0].Operator(), some, nil
}
