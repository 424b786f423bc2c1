//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
)

// slots of the two labs that tests share. They are taken over and handed over many times; with the
// default number of them the faults (e2e/chaos) and the chart (e2e/helm) do that.
const slots = 64

// fleetLab is a lab with three replicas. TestMain stops it.
var fleetLab = sync.OnceValues(func() (*harness.Lab, error) {
	return up(context.Background(), harness.Options{Dir: filepath.Join(os.Getenv(labsVariable), "fleet"), Replicas: 3, Slots: slots})
})

// fleetLock is held by the test that uses the lab with three replicas: each of them stops replicas,
// or moves slots.
var fleetLock sync.Mutex

// fleet returns the lab with three replicas to one test at a time, which starts all replicas again
// that it stops.
func fleet(t *testing.T) *harness.Lab {
	t.Helper()
	fleetLock.Lock()
	t.Cleanup(fleetLock.Unlock)
	lab, err := fleetLab()
	if err != nil {
		t.Fatal(err)
	}
	return lab
}

// slotOf returns the slot of a root.
func slotOf(t *testing.T, lab *harness.Lab, namespace, root string) int {
	t.Helper()
	spread, err := assignment.NewSpread(lab.SlotCount, assignment.ByDeployment)
	if err != nil {
		t.Fatal(err)
	}
	return spread.Of(namespace, root)
}

func slotLease(lab *harness.Lab, slot int) string {
	return member.SlotLeaseName(harness.FleetName, slot, lab.SlotCount)
}

// TestReplicas: objects pass from one of three replicas to another one, by a hand-over and by the
// death of their owner.
func TestReplicas(t *testing.T) {
	t.Parallel()
	s := newSpace(t, fleet(t), "replicas", "")
	s.deploy("pool", 3, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Annotations = map[string]string{"template": "first"}
	})
	s.rolled("first", 3)
	s.reports("pool", 3)
	nodes := s.joined()
	s.noTokens()
	slot := slotOf(t, s.lab, s.name, "pool")

	t.Run("HandOver", func(t *testing.T) {
		s := s.in(t)
		position, err := s.lab.AuditEnd()
		s.must(err)
		for range 2 { // the first one ends its passes before the slot moves again
			s.handOver(slot)
		}
		requests, err := s.lab.Requests(position)
		s.must(err)
		for _, r := range requests {
			_, ofNode := nodes[r.Name]
			if r.IsFleet() && r.IsWrite() && (r.Namespace == s.name || r.Resource == "nodes" && ofNode) {
				s.Errorf("for a hand-over %s did %s %s/%s", r.User, r.Verb, r.Resource, r.Name)
			}
		}
	})
	t.Run("OwnerKilledInARollout", func(t *testing.T) {
		s := s.in(t)
		within := s.watchLimits(3, 4)
		s.rollIt("second")
		s.eventually("a machine of the second template exists", func(ctx context.Context) error {
			machines, err := s.machines(ctx, "pool")
			if !slices.ContainsFunc(machines, func(m v1alpha1.Machine) bool { return m.Annotations["template"] == "second" }) {
				err = errors.Join(err, errors.New("none does"))
			}
			return err
		})
		killed := s.killOwner(slot, func(owner) {})
		s.rolled("second", 3)
		within()
		s.withoutRolloutNodes()
		s.starts(killed.replica)
		s.joined()
	})
	s.remove("machinedeployments", "pool")
	s.gone()
}

// TestOtherManagerIsRespected: the fleet does not serve a namespace while another client renews the
// Leases of Machine Controller Manager there, and serves it when the client has ended.
func TestOtherManagerIsRespected(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "other-manager", "")
	const other = "mcm-of-another-fleet"
	position, err := s.lab.AuditEnd()
	s.must(err)
	leases := s.lab.Control.CoordinationV1().Leases(s.name)
	ctx, end := context.WithCancel(t.Context())
	var renewing sync.WaitGroup
	stop := func() { end(); renewing.Wait() }
	t.Cleanup(stop)
	for _, name := range []string{v1alpha1.LeaseManager, v1alpha1.LeaseMachineController} {
		lease, err := leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: new(other), LeaseDurationSeconds: new(int32(15)), AcquireTime: new(metav1.NowMicro()),
				RenewTime: new(metav1.NowMicro()),
			},
		}, metav1.CreateOptions{})
		s.must(err)
		renewing.Go(func() {
			for tick := time.NewTicker(time.Second); ctx.Err() == nil; {
				select {
				case <-ctx.Done():
					tick.Stop()
				case <-tick.C:
					lease.Spec.RenewTime = new(metav1.NowMicro())
					written, err := leases.Update(context.WithoutCancel(ctx), lease, metav1.UpdateOptions{})
					if err != nil {
						t.Errorf("renew Lease %s: %v", name, err)
						return
					}
					lease = written
				}
			}
		})
	}

	s.deploy("pool", 1)
	s.emits("pool", v1alpha1.EventNotAlone)
	requests, err := s.lab.Requests(position)
	s.must(err)
	for _, r := range requests {
		if r.Namespace == s.name && r.IsFleet() && r.IsWrite() && r.Resource != "events" && r.Code < 300 {
			t.Errorf("while another controller serves the namespace, %s did %s %s/%s", r.User, r.Verb, r.Resource, r.Name)
		}
	}
	stop()
	s.running("pool", 1)
	s.joined()
	for _, lease := range s.leasesOfMCM(t.Context()) {
		if holder := member.Holder(&lease); !strings.Contains(holder, harness.FleetName) {
			t.Errorf("Lease %s is held by %q, want the fleet", lease.Name, holder)
		}
	}
	s.remove("machinedeployments", "pool")
	s.gone()
}

// leasesOfMCM returns MCM's Leases of the namespace.
func (s *space) leasesOfMCM(ctx context.Context) (leases []coordinationv1.Lease) {
	s.Helper()
	for _, name := range []string{v1alpha1.LeaseManager, v1alpha1.LeaseMachineController} {
		lease, err := s.lab.Control.CoordinationV1().Leases(s.name).Get(ctx, name, metav1.GetOptions{})
		s.must(err)
		leases = append(leases, *lease)
	}
	return leases
}

// owner is the holder of a slot: a session of a replica, under an epoch. The zero owner is none.
type owner struct {
	replica, session string
	epoch            int64
}

// owner returns the current holder of a slot, and its Lease. The leader may move it at any time:
// see killOwner and handOver.
func (s *space) owner(slot int) (owner, *coordinationv1.Lease) {
	s.Helper()
	lease, err := s.lab.Control.CoordinationV1().Leases(harness.FleetNamespace).Get(s.Context(), slotLease(s.lab, slot), metav1.GetOptions{})
	s.must(err)
	session := member.Holder(lease)
	replica, _ := member.ReplicaOf(session)
	return owner{replica: replica, session: session, epoch: member.Transitions(lease)}, lease
}

// killOwner kills the replica that holds a slot, and calls a function before, while that replica
// serves the slot. It starts again when the slot has moved in between: the leader does not move a
// slot again for 5 minutes.
func (s *space) killOwner(slot int, before func(owner)) owner {
	s.Helper()
	for {
		found := s.serving(slot)
		before(found)
		s.must(s.lab.Do(s.Context(), found.replica, harness.Kill))
		if now, _ := s.owner(slot); now == found {
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
	s.eventually(replica+" is ready", func(ctx context.Context) error { return s.lab.Ready(ctx, replica) })
}

// serving waits until a replica, except those that are named, serves a slot that is assigned to it.
func (s *space) serving(slot int, not ...string) (now owner) {
	s.Helper()
	s.eventually(fmt.Sprintf("slot %d is served, and not by %q", slot, not), func(ctx context.Context) error {
		var lease *coordinationv1.Lease
		now, lease = s.owner(slot)
		if assigned := lease.Annotations[v1alpha1.AnnotationAssignedReplica]; now.replica == "" || slices.Contains(not, now.replica) ||
			now.replica != assigned {
			return fmt.Errorf("it is held by %+v and assigned to %s", now, assigned)
		}
		return isServed(ctx, s.lab, now.replica, slot)
	})
	return now
}

// isServed returns an error unless a replica serves a slot.
func isServed(ctx context.Context, lab *harness.Lab, replica string, slot int) error {
	view, err := lab.Slots(ctx, replica)
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

// move is a hand-over of a slot: from a session, to a replica.
type move struct {
	from owner
	to   string
}

// handOver requests the hand-over of a slot, as the leader does, from the session that holds it to
// another replica, and waits until that serves it. If the leader assigns the slot to another
// replica at once, it repeats the request: the leader does not move a slot again for 5 minutes. The
// session passes all checks before the request.
func (s *space) handOver(slot int, checks ...func(context.Context, owner) error) (m move) {
	s.Helper()
	s.eventually(fmt.Sprintf("slot %d is handed over", slot), func(ctx context.Context) error {
		now, lease := s.owner(slot)
		switch {
		case now.replica == "":
			return errors.New("it has no holder")
		case m.to != "" && now.epoch == m.from.epoch+1 && now.replica == m.to:
			return isServed(ctx, s.lab, m.to, slot)
		case m.to == "" || now != m.from: // it has moved to another replica
			if err := isServed(ctx, s.lab, now.replica, slot); err != nil {
				return err
			}
			for _, check := range checks {
				if err := check(ctx, now); err != nil {
					return err
				}
			}
			m = move{from: now, to: harness.Fleet}
			if now.replica == m.to {
				m.to = "fleet-1"
			}
		}
		var err error
		if lease.Annotations[v1alpha1.AnnotationAssignedReplica] != m.to {
			lease.Annotations[v1alpha1.AnnotationAssignedReplica] = m.to
			_, err = s.lab.Control.CoordinationV1().Leases(lease.Namespace).Update(ctx, lease, metav1.UpdateOptions{})
		}
		return errors.Join(fmt.Errorf("it is held by %+v, and %s was requested", now, m.to), err)
	})
	return m
}
