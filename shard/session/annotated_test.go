package session

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// seesHold returns the annotation of the leader Lease as the replica has seen it.
func (p *process) seesHold() string {
	if lease := p.leaderLease.Load(); lease != nil {
		return lease.Annotations[v1alpha1.AnnotationHoldDeletions]
	}
	return ""
}

func annotate(server *server, value string) {
	server.Edit(leaderLease, func(l *coordinationv1.Lease) { l.Annotations[v1alpha1.AnnotationHoldDeletions] = value })
}

// A person annotates the leader Lease: every replica sees it within a second, it stays on the Lease
// while the leader renews it, and also when another replica becomes the leader, and a replica that
// starts sees it before it acquires a slot.
func TestAnnotationOnTheLeaderLeaseStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		a := begin(t, server, "fleet-0")
		wantAll(t, 25*time.Second, a)
		b := begin(t, server, "fleet-1")
		wantAll(t, time.Minute, a, b)
		annotate(server, "maintenance")
		time.Sleep(time.Second)
		if a.seesHold() != "maintenance" || b.seesHold() != "maintenance" {
			t.Errorf("after 1 s the replicas see %q and %q", a.seesHold(), b.seesHold())
		}
		for range 60 {
			time.Sleep(time.Second)
			if got := server.Leases()[leaderLease].Annotations[v1alpha1.AnnotationHoldDeletions]; got != "maintenance" {
				t.Fatalf("the annotation is %q", got)
			}
		}
		if holder := member.Holder(server.Leases()[leaderLease]); holder != a.cfg.Settings.Session {
			t.Errorf("%q leads: an annotation must not cost the leadership", holder)
		}
		a.kill()
		wantAll(t, 2*time.Minute, b)
		c := begin(t, server, "fleet-2")
		for len(c.open()) == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		if b.seesHold() != "maintenance" || c.seesHold() != "maintenance" {
			t.Errorf("under another leader the replicas see %q and %q", b.seesHold(), c.seesHold())
		}
		annotate(server, "")
		time.Sleep(time.Second)
		if b.seesHold() != "" || c.seesHold() != "" {
			t.Errorf("removed: the replicas see %q and %q", b.seesHold(), c.seesHold())
		}
	})
}

// The annotation is written while a renewal is on its way, which was based on the Lease without it.
func TestAnnotationWrittenDuringARenewalStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		a := begin(t, server, "fleet-0")
		wantAll(t, 25*time.Second, a)
		written := false
		server.Fault(func(r apiserver.Request) error {
			if r.Method == http.MethodPut && r.URL.Path[len(r.URL.Path)-len(leaderLease):] == leaderLease && !written {
				written = true
				annotate(server, "maintenance")
			}
			return nil
		})
		time.Sleep(10 * time.Second)
		if got := server.Leases()[leaderLease].Annotations[v1alpha1.AnnotationHoldDeletions]; !written || got != "maintenance" {
			t.Errorf("written %v, and the annotation is %q", written, got)
		}
	})
}

// Without the fleet's label the Lease is in no watch. The leader writes it again; meanwhile the
// Lease counts as gone.
func TestLabelOfTheLeaderLeaseIsRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		a := begin(t, server, "fleet-0")
		wantAll(t, 25*time.Second, a)
		annotate(server, "maintenance")
		server.Edit(leaderLease, func(l *coordinationv1.Lease) { delete(l.Labels, v1alpha1.LabelFleet) })
		time.Sleep(5 * time.Second)
		if got := server.Leases()[leaderLease].Labels[v1alpha1.LabelFleet]; got != "fleet" || a.seesHold() != "maintenance" {
			t.Errorf("the label is %q, and the replica sees %q", got, a.seesHold())
		}
	})
}

// A leader Lease that is deleted holds nothing.
func TestDeletedLeaderLeaseIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		a := begin(t, server, "fleet-0")
		wantAll(t, 25*time.Second, a)
		server.Fault(func(r apiserver.Request) error {
			if r.Method == http.MethodPost {
				return errors.New("refused")
			}
			return nil
		})
		server.Delete(leaderLease)
		time.Sleep(time.Second)
		if lease := a.leaderLease.Load(); lease != nil {
			t.Errorf("the replica still sees %s", lease.Name)
		}
	})
}
