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
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/chaos/check"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// move is a hand-over that was measured.
type move struct {
	slot int
	// assignedAt is when the other assigned replica was written, took the time from then until the
	// slot was served.
	assignedAt time.Time
	took       time.Duration
}

// moves are hand-overs that were measured.
type moves struct {
	created []move
	// elsewhere counts those that are excluded, because the leader has assigned the slot to another
	// replica meanwhile.
	elsewhere int
	// idle counts those that are excluded, because not all machines of the slot had a call of the
	// cloud in flight when it was requested.
	idle int
}

func (m *moves) String() string {
	text := fmt.Sprintf("median %.3f s, slowest %.3f s; excluded of %d: %d, because the leader moved the slot elsewhere",
		m.percentile(50).Seconds(), m.percentile(100).Seconds(), len(m.created)+m.elsewhere+m.idle, m.elsewhere)
	if m.idle > 0 {
		text += fmt.Sprintf("; %d, because not all %d machines of the slot had a call of the cloud in flight", m.idle, machines)
	}
	return text
}

func (m *moves) percentile(p int) time.Duration {
	var took []time.Duration
	for _, one := range m.created {
		took = append(took, one.took)
	}
	return percentile(took, p)
}

// some hands a few slots over at the same time, after stir has started changes of their machines.
func (m *moves) some(ctx context.Context, lab *harness.Lab, roots []root, atATime int, stir func(root) error) error {
	replicas, err := lab.Replicas(ctx)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var failed error
	var running sync.WaitGroup
	for _, i := range rand.Perm(len(roots))[:min(atATime, len(roots))] { //nolint:gosec // no security needed
		running.Go(func() {
			created, there, err := handOverOne(ctx, lab, roots[i], replicas, stir)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				failed = err
			case there:
				m.created = append(m.created, created)
			default:
				m.elsewhere++
			}
		})
	}
	running.Wait()
	if failed == nil && m.elsewhere > mostElsewhere {
		failed = fmt.Errorf("of %d hand-overs the leader moved %d elsewhere, which is too many to exclude",
			len(m.created)+m.elsewhere, m.elsewhere)
	}
	return failed
}

// onlyBusy excludes the hand-overs that were requested when not all machines of the slot had a call
// of the cloud in flight. It needs all calls, so it has to be called when those that were in flight
// have ended.
func (m *moves) onlyBusy(calls []cloudapi.Call) error {
	before := len(m.created)
	m.created = slices.DeleteFunc(m.created, func(one move) bool { return atCloud(calls, one.slot, one.assignedAt) < machines })
	m.idle += before - len(m.created)
	if m.idle > mostIdle {
		return fmt.Errorf("of %d hand-overs only %d were requested while all %d machines of the slot had a call of the cloud in flight",
			m.idle+len(m.created), len(m.created), machines)
	}
	return nil
}

// atCloud counts the machines for which a call to create or delete the VM, sent under a slot, was
// in flight at a moment.
func atCloud(calls []cloudapi.Call, slot int, at time.Time) int {
	busy := map[string]bool{}
	for _, call := range calls {
		changes := call.Operation == cloudapi.OpCreateInstance || call.Operation == cloudapi.OpDeleteInstance
		if !changes || call.Start.After(at) || !call.End.After(at) {
			continue
		}
		if actor, known := check.ParseActor(call.Caller); known && actor.Slot == slot {
			busy[call.Machine] = true
		}
	}
	return len(busy)
}

// handOverOne writes another assigned replica, and gets the time when that had completed the first
// key of the slot. If it has not after a while, it returns the time until then; there is false if
// the leader has assigned the slot to another replica.
func handOverOne(
	ctx context.Context, lab *harness.Lab, r root, replicas []string, stir func(root) error,
) (created move, there bool, err error) {
	if stir != nil {
		if err := stir(r); err != nil {
			return created, false, err
		}
	}
	if created.slot, err = strconv.Atoi(r.slot); err != nil {
		return created, false, fmt.Errorf("slot label of %s: %w", r.name, err)
	}
	next, err := assignNext(ctx, lab, &created, replicas)
	if err != nil {
		return created, false, err
	}
	waited, cancel := context.WithTimeout(ctx, arrived)
	defer cancel()
	served, late := servedAt(waited, lab, next, created.slot, created.assignedAt)
	if late == nil {
		created.took = served.Sub(created.assignedAt)
		return created, true, nil
	}
	created.took = time.Since(created.assignedAt)
	lease, err := slotLease(ctx, lab, created.slot)
	if err != nil || lease.Annotations[v1alpha1.AnnotationAssignedReplica] != next {
		return created, false, err
	}
	fmt.Printf("a slow hand-over, of slot %d to %s: %v\n", created.slot, next, late)
	return created, true, nil
}

func slotLease(ctx context.Context, lab *harness.Lab, slot int) (*coordinationv1.Lease, error) {
	lease, err := lab.Control.CoordinationV1().Leases(harness.FleetNamespace).Get(ctx, slotLeaseName(slot), metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the slot Lease: %w", err)
	}
	return lease, nil
}

func slotLeaseName(slot int) string { return fmt.Sprintf("%s-slot-%03d", harness.FleetName, slot) }

// assignNext waits until a slot is held by its assigned replica, assigns the next replica, and
// records the time.
func assignNext(ctx context.Context, lab *harness.Lab, m *move, replicas []string) (next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, harness.Standstill)
	defer cancel()
	err = harness.Eventually(ctx, fmt.Sprintf("slot %d is assigned to another replica", m.slot), func(ctx context.Context) error {
		lease, err := slotLease(ctx, lab, m.slot)
		if err != nil {
			return err
		}
		now := lease.Annotations[v1alpha1.AnnotationAssignedReplica]
		if id := lease.Spec.HolderIdentity; id == nil || !strings.HasPrefix(*id, now+"_") {
			return errors.New("it is moving for another reason")
		}
		next = replicas[(slices.Index(replicas, now)+1)%len(replicas)]
		lease.Annotations[v1alpha1.AnnotationAssignedReplica] = next
		m.assignedAt = time.Now()
		_, err = lab.Control.CoordinationV1().Leases(harness.FleetNamespace).Update(ctx, lease, metav1.UpdateOptions{})
		return err
	})
	return next, err
}

// servedAt gets the time when a replica had completed the first key of a slot that it has acquired
// since start. It runs on this machine, so that its clock is ours.
func servedAt(ctx context.Context, lab *harness.Lab, replica string, slot int, start time.Time) (served time.Time, err error) {
	err = harness.Eventually(ctx, fmt.Sprintf("%s serves slot %d", replica, slot), func(ctx context.Context) error {
		view, err := lab.Slots(ctx, replica)
		if err != nil {
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
