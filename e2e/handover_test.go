//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// owner is the holder of a slot: a session of a replica, under an epoch. The zero owner is none.
type owner struct {
	replica, session string
	epoch            int64
}

// owner returns the current holder of a slot. The leader may move it at any time: see killOwner, handOver and stopNext.
func (s *space) owner(slot int) owner {
	s.Helper()
	return ownerOf(s.lease(slot))
}

func ownerOf(lease *coordinationv1.Lease) owner {
	session := member.Holder(lease)
	replica, _ := member.ReplicaOf(session)
	return owner{replica: replica, session: session, epoch: member.Transitions(lease)}
}

// lease returns the Lease of a slot.
func (s *space) lease(slot int) *coordinationv1.Lease {
	s.Helper()
	lease, err := s.lab.Control.CoordinationV1().Leases(harness.FleetNamespace).Get(s.Context(), slotLease(s.lab, slot), metav1.GetOptions{})
	s.must(err)
	return lease
}

// killOwner kills the replica that holds a slot, and calls a function before, while that replica serves the slot. It starts again
// when the slot has moved in between: the leader does not move a slot again for 5 minutes.
func (s *space) killOwner(slot int, before func(owner)) owner {
	s.Helper()
	for {
		found := s.serving(slot)
		before(found)
		s.must(s.lab.Do(s.Context(), found.replica, harness.Kill))
		if s.owner(slot) == found {
			return found
		}
		s.Logf("slot %d has left %s before that was killed", slot, found.session)
		s.starts(found.replica)
	}
}

// starts has a killed replica start again, and waits until it is ready.
func (s *space) starts(replica string) {
	s.Helper()
	s.must(s.lab.Do(s.Context(), replica, harness.Start))
	s.comesUp(replica)
}

// comesUp waits until a replica is ready.
func (s *space) comesUp(replica string) {
	s.Helper()
	s.eventually(replica+" is ready", func(ctx context.Context) error { return s.lab.Ready(ctx, replica) })
}

// serving waits until a replica, except those that are named, serves a slot that is assigned to it.
func (s *space) serving(slot int, not ...string) (now owner) {
	s.Helper()
	s.eventually(fmt.Sprintf("slot %d is served, and not by %q", slot, not), func(ctx context.Context) error {
		lease := s.lease(slot)
		now = ownerOf(lease)
		if assigned := lease.Annotations[v1alpha1.AnnotationAssignedReplica]; now.replica == "" || slices.Contains(not, now.replica) || now.replica != assigned {
			return fmt.Errorf("it is held by %+v and assigned to %s", now, assigned)
		}
		return s.isServed(ctx, now.replica, slot)
	})
	return now
}

// move is a requested hand-over: of a slot, from a session, to a replica.
type move struct {
	slot int
	from owner
	to   string
}

// planned is longer than the leader takes to react to an assigned replica that was written by hand.
const planned = 2 * time.Second

// handOver requests the hand-over of a slot, as the leader does, from the session that holds it to another replica, and waits
// until that has begun. If the leader assigns the slot to another replica at once, it repeats the request: the leader does not
// move a slot again for 5 minutes. The session passes all checks before the request.
func (s *space) handOver(slot int, checks ...func(context.Context, owner) error) (m move) {
	s.Helper()
	var since time.Time // since when the slot is assigned to m.to
	s.eventually(fmt.Sprintf("slot %d is being handed over", slot), func(ctx context.Context) error {
		lease := s.lease(slot)
		switch now := ownerOf(lease); {
		case m.to != "" && now.epoch == m.from.epoch+1 && now.replica == m.to:
			return nil
		case now.replica == "":
			return errors.New("it has no holder")
		case m.to == "" || now != m.from: // it has moved to another replica
			if err := s.isServed(ctx, now.replica, slot); err != nil {
				return err
			}
			for _, check := range checks {
				if err := check(ctx, now); err != nil {
					return err
				}
			}
			m = move{slot: slot, from: now, to: harness.Fleet}
			if now.replica == m.to {
				m.to = "fleet-1"
			}
		}
		if wrote, err := s.assign(ctx, lease, m.to); wrote || err != nil {
			since = time.Now()
			return errors.Join(errors.New("it was requested a moment ago"), err)
		}
		if err := s.isStopping(ctx, m.from.replica, slot); err != nil {
			return err
		}
		if requested := time.Since(since); requested < planned {
			return errors.New("it was requested a moment ago, and the leader may assign the slot to another replica")
		}
		return nil
	})
	return m
}

// assign writes the assigned replica of a slot, unless it is that already, and reports whether it wrote it.
func (s *space) assign(ctx context.Context, lease *coordinationv1.Lease, replica string) (wrote bool, err error) {
	if lease.Annotations[v1alpha1.AnnotationAssignedReplica] == replica {
		return false, nil
	}
	lease.Annotations[v1alpha1.AnnotationAssignedReplica] = replica
	_, err = s.lab.Control.CoordinationV1().Leases(lease.Namespace).Update(ctx, lease, metav1.UpdateOptions{})
	return true, err
}

// arrives waits until the slot has moved to the requested replica, and its holder serves it. It repeats the request while the slot
// has not moved. The leader may have moved the slot on at once, also back to its earlier holder.
func (s *space) arrives(m move) {
	s.Helper()
	s.eventually(fmt.Sprintf("slot %d has moved to %s, and is served", m.slot, m.to), func(ctx context.Context) error {
		lease := s.lease(m.slot)
		now := ownerOf(lease)
		if now == m.from {
			_, err := s.assign(ctx, lease, m.to)
			return errors.Join(fmt.Errorf("it is held by %+v", now), err)
		}
		if now.replica == "" || now.epoch == m.from.epoch+1 && now.replica != m.to {
			return fmt.Errorf("it is held by %+v, and was handed over by %+v", now, m.from)
		}
		return s.isServed(ctx, now.replica, m.slot)
	})
}

// TestHandOverByHand moves a slot as the leader does. No object in it is written.
func TestHandOverByHand(t *testing.T) {
	t.Parallel()
	s := fleetSpace(t, "by-hand", slotOfByHand)
	s.deploy("pool", 2)
	s.running("pool", 2)
	s.reports("pool", 2)
	before := s.joined()
	s.noTokens()
	position, err := s.lab.AuditEnd()
	s.must(err)

	s.arrives(s.handOver(slotOfByHand))
	wait(t, time.Second) // all objects in it were observed
	requests, err := s.lab.Requests(position)
	s.must(err)
	for _, r := range requests {
		_, ofNode := before[r.Name]
		if r.IsFleet() && r.IsWrite() && (r.Namespace == s.name || r.Resource == "nodes" && ofNode) {
			t.Errorf("for a hand-over %s did %s %s/%s", r.User, r.Verb, r.Resource, r.Name)
		}
	}
}

func (s *space) isStopping(ctx context.Context, replica string, slot int) error {
	view, err := s.lab.Slots(ctx, replica)
	if here, holds := view.Holds(slot); err == nil && (!holds || !here.Stopping) {
		err = fmt.Errorf("its view is %+v", here)
	}
	return err
}

func (s *space) isServed(ctx context.Context, replica string, slot int) error {
	view, err := s.lab.Slots(ctx, replica)
	if err != nil {
		return err
	}
	for _, here := range view.Here {
		if here.Slot == slot && !here.Served.IsZero() {
			return nil
		}
	}
	return fmt.Errorf("%s does not serve it", replica)
}
