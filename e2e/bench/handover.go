package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// moves are hand-overs that were measured.
type moves struct {
	took []time.Duration
	// elsewhere counts those that are left out, because the leader had found another place for the slot meanwhile.
	elsewhere int
}

func (m *moves) String() string {
	return fmt.Sprintf("median %.3f s, slowest %.3f s; %d of %d left out, because the leader moved the slot elsewhere",
		percentile(m.took, 50).Seconds(), percentile(m.took, 100).Seconds(), m.elsewhere, len(m.took)+m.elsewhere)
}

// some hands a few slots over at the same time, after stir has set their machines in motion.
func (m *moves) some(ctx context.Context, lab *harness.Lab, roots []root, atATime int, stir func(root) error) error {
	replicas, err := lab.Replicas(ctx)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var failed error
	var running sync.WaitGroup
	for _, i := range rand.Perm(len(roots))[:min(atATime, len(roots))] { //nolint:gosec // which one is of no interest to anybody
		running.Go(func() {
			took, there, err := handOverOne(ctx, lab, roots[i], replicas, stir)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				failed = err
			case there:
				m.took = append(m.took, took)
			default:
				m.elsewhere++
			}
		})
	}
	running.Wait()
	if failed == nil && m.elsewhere > mostElsewhere {
		failed = fmt.Errorf("of %d hand-overs the leader moved %d elsewhere, which is too many to leave out", len(m.took)+m.elsewhere, m.elsewhere)
	}
	return failed
}

// handOverOne writes another preferred holder, and asks it when it was done with the first key of the slot. If that is
// not so after a while, it returns the time until then; there is false if the leader had other plans with the slot.
func handOverOne(ctx context.Context, lab *harness.Lab, r root, replicas []string, stir func(root) error) (took time.Duration, there bool, err error) {
	if stir != nil {
		if err := stir(r); err != nil {
			return 0, false, err
		}
		if err := pause(ctx, time.Duration(100+rand.IntN(200))*time.Millisecond); err != nil { //nolint:gosec // any moment will do
			return 0, false, err
		}
	}
	slot, err := strconv.Atoi(r.slot)
	if err != nil {
		return 0, false, fmt.Errorf("slot label of %s: %w", r.name, err)
	}
	next, start, err := preferNext(ctx, lab, slot, replicas)
	if err != nil {
		return 0, false, err
	}
	waited, cancel := context.WithTimeout(ctx, arrived)
	defer cancel()
	served, late := servedAt(waited, lab, next, slot, start)
	if late == nil {
		return served.Sub(start), true, nil
	}
	took = time.Since(start)
	lease, err := slotLease(ctx, lab, slot)
	if err != nil || lease.Annotations[v1alpha1.AnnotationPreferredHolder] != next {
		return 0, false, err
	}
	fmt.Printf("a slow hand-over, of slot %d to %s: %v\n", slot, next, late)
	return took, true, nil
}

func slotLease(ctx context.Context, lab *harness.Lab, slot int) (*coordinationv1.Lease, error) {
	lease, err := lab.Control.CoordinationV1().Leases(harness.FleetNamespace).Get(ctx, slotLeaseName(slot), metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the slot Lease: %w", err)
	}
	return lease, nil
}

func slotLeaseName(slot int) string { return fmt.Sprintf("%s-slot-%03d", harness.FleetName, slot) }

// preferNext waits until a slot is where it should be, and writes the next replica as its preferred holder.
func preferNext(ctx context.Context, lab *harness.Lab, slot int, replicas []string) (next string, at time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = harness.Eventually(ctx, fmt.Sprintf("another holder of slot %d is preferred", slot), func(ctx context.Context) error {
		lease, err := slotLease(ctx, lab, slot)
		if err != nil {
			return err
		}
		now := lease.Annotations[v1alpha1.AnnotationPreferredHolder]
		if id := lease.Spec.HolderIdentity; id == nil || !strings.HasPrefix(*id, now+"_") {
			return errors.New("it is on its way for another reason")
		}
		next = replicas[(slices.Index(replicas, now)+1)%len(replicas)]
		lease.Annotations[v1alpha1.AnnotationPreferredHolder] = next
		at = time.Now()
		_, err = lab.Control.CoordinationV1().Leases(harness.FleetNamespace).Update(ctx, lease, metav1.UpdateOptions{})
		return err
	})
	return next, at, err
}

// servedAt asks a replica when it was done with the first key of a slot that it has come to hold since start. It runs on
// this machine, so that its clock is ours.
func servedAt(ctx context.Context, lab *harness.Lab, replica string, slot int, start time.Time) (served time.Time, err error) {
	err = harness.Eventually(ctx, fmt.Sprintf("%s serves slot %d", replica, slot), func(ctx context.Context) error {
		var view struct {
			Here []struct {
				Slot   int
				Served time.Time
			}
		}
		if err := lab.DebugSlots(ctx, replica, &view); err != nil {
			return err
		}
		for _, here := range view.Here {
			if here.Slot == slot && here.Served.After(start) {
				served = here.Served
				return nil
			}
		}
		return fmt.Errorf("it does not, and holds %d slots", len(view.Here))
	})
	return served, err
}
