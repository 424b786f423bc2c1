package session

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// The time without a replica is known to each replica that begins after it, whether or not it is
// the first one, and after hand-overs, too. A restart is no such time.
func TestUnservedIsKnownToEachReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		later := func(session string) func(*protocol.Settings) {
			return func(s *protocol.Settings) { s.Session = member.Identity(s.Replica, session) }
		}
		recorded := func(p *process, replica string) member.Gap {
			t.Helper()
			wantAll(t, time.Minute, p)
			client := kubernetes.NewForConfigOrDie(server.Config())
			lease, err := client.CoordinationV1().Leases("fleet-system").Get(t.Context(),
				member.SessionLeaseName("fleet", replica), metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			gap, err := member.ParseGap(lease.Annotations[v1alpha1.AnnotationUnserved])
			if err != nil {
				t.Fatal(err)
			}
			return gap
		}
		killed := func(p *process) {
			t.Helper()
			p.kill()
			if err := <-p.ended; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		a := begin(t, server, "fleet-0")
		if gap := recorded(a, "fleet-0"); !gap.IsZero() {
			t.Fatalf("the first replica records %s", gap)
		}
		killed(a)
		time.Sleep(30 * time.Second)
		a = begin(t, server, "fleet-0", later("abcdf"))
		if gap := recorded(a, "fleet-0"); !gap.IsZero() {
			t.Fatalf("a restart is recorded: %s", gap)
		}
		killed(a)
		time.Sleep(3 * time.Hour)
		a = begin(t, server, "fleet-0", later("abcdg"))
		first := recorded(a, "fleet-0")
		if d := first.To.Sub(first.From); d < 3*time.Hour-time.Minute || d > 3*time.Hour+time.Minute {
			t.Fatalf("3 h without a replica are recorded as %s", first)
		}
		killed(a)
		b := begin(t, server, "fleet-1")
		if gap := recorded(b, "fleet-1"); gap != first {
			t.Errorf("the next replica records %s, want %s", gap, first)
		}
	})
}
