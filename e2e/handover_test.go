//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership/state"
)

// move is a hand-over that was asked for: of a slot, in which epoch, and to which replica.
type move struct {
	slot  int
	epoch int64
	to    string
}

// handOver has a slot handed over, as the leader would, from the session that holds it to a replica, and waits until that has
// begun. It asks once more where the leader has at once found a better place, and the slot stays or goes there: the leader
// leaves a slot alone for 5 minutes that it has moved.
func (s *space) handOver(slot int) (m move) {
	s.Helper()
	first := s.lease(slot)
	m = move{slot: slot, epoch: member.Transitions(first), to: harness.Fleet}
	if from, _ := member.ReplicaOf(member.Holder(first)); from == m.to {
		m.to = "fleet-1"
	}
	s.eventually(fmt.Sprintf("slot %d begins to go to %s", slot, m.to), func(ctx context.Context) error {
		lease := s.lease(slot)
		from, _ := member.ReplicaOf(member.Holder(lease))
		switch epoch := member.Transitions(lease); {
		case epoch == m.epoch+1 && from != "" && from != m.to:
			m.epoch = epoch // the leader has sent it elsewhere
		case epoch != m.epoch:
			return nil
		}
		if preferred := lease.Annotations[v1alpha1.AnnotationPreferredHolder]; preferred != m.to {
			lease.Annotations[v1alpha1.AnnotationPreferredHolder] = m.to
			_, err := s.lab.Control.CoordinationV1().Leases(lease.Namespace).Update(ctx, lease, metav1.UpdateOptions{})
			return cmp.Or(err, fmt.Errorf("it was to be with %s", preferred))
		}
		return s.isStopping(ctx, from, slot)
	})
	return m
}

// arrives waits until the slot has gone where it was to go, and whoever holds it then works on it. The leader may have sent it
// on at once, be it to where it was.
func (s *space) arrives(m move) {
	s.Helper()
	s.eventually(fmt.Sprintf("slot %d has gone to %s, and is worked on", m.slot, m.to), func(ctx context.Context) error {
		lease := s.lease(m.slot)
		replica, held := member.ReplicaOf(member.Holder(lease))
		epoch := member.Transitions(lease)
		if !held || epoch == m.epoch || epoch == m.epoch+1 && replica != m.to {
			return fmt.Errorf("it is held by %q in epoch %d, and was handed over in epoch %d", member.Holder(lease), epoch, m.epoch)
		}
		return s.isServed(ctx, replica, m.slot)
	})
}

// TestHandOverByHand moves a slot as the leader would. Nothing of what is in it is written.
func TestHandOverByHand(t *testing.T) {
	t.Parallel()
	s := newSpace(t, fleet(t), "by-hand", "")
	const slot = 5
	name := s.inSlot(slot)
	s.deploy(name, 2)
	s.running(name, 2)
	s.reports(name, 2)
	before := s.joined()
	s.noTokens()
	mark, err := s.lab.MarkAudit()
	s.must(err)

	s.arrives(s.handOver(slot))
	wait(t, time.Second) // all that is in it has been looked at
	requests, err := s.lab.Requests(mark)
	s.must(err)
	for _, r := range requests {
		_, ofNode := before[r.Name]
		if r.IsFleet() && r.IsWrite() && (r.Namespace == s.name || r.Resource == "nodes" && ofNode) {
			t.Errorf("for a hand-over %s did %s %s/%s", r.User, r.Verb, r.Resource, r.Name)
		}
	}
}

// serves waits until a replica works on a slot.
func (s *space) serves(replica string, slot int) {
	s.Helper()
	s.eventually(fmt.Sprintf("%s works on slot %d", replica, slot), func(ctx context.Context) error {
		return s.isServed(ctx, replica, slot)
	})
}

// stopping waits until a replica begins nothing any more in a slot that is to be handed over.
func (s *space) stopping(replica string, slot int) {
	s.Helper()
	s.eventually(fmt.Sprintf("%s is stopping slot %d", replica, slot), func(ctx context.Context) error {
		return s.isStopping(ctx, replica, slot)
	})
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
	return fmt.Errorf("%s does not work on it", replica)
}
