package session

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// unowned are slots without a holder, and whether the leadership was in the context of their
// report.
type unowned struct {
	Slots []int
	Leads bool
}

// receive receives slots without a holder, and fails the first time.
func (p *process) receive(ctx context.Context, slots []int) error {
	leads := slices.ContainsFunc(telemetry.OwnerAttributes(ctx), func(a attribute.KeyValue) bool { return a.Key == "mcf.leader" })
	p.reported <- unowned{slots, leads}
	if len(p.reported) == 1 {
		return errors.New("not now")
	}
	return nil
}

func TestUnownedSlotIsReportedOnceInAnOutage(t *testing.T) {
	o := outages[int]{}
	for _, step := range []struct {
		at      time.Duration
		unowned []int
		want    []int
	}{
		{at: 0, unowned: []int{1, 2}},
		{at: 20 * time.Second, unowned: []int{1, 3}},
		{at: 25 * time.Second, unowned: []int{1, 2, 3}},
		{at: 31 * time.Second, unowned: []int{1, 2, 3}, want: []int{1}},
		{at: 60 * time.Second, unowned: []int{1, 2, 3}, want: []int{2, 3}},
		{at: 2 * time.Minute, unowned: []int{1, 2, 3}},
		{at: 3 * time.Minute, unowned: []int{2, 3}},
		{at: 4 * time.Minute, unowned: []int{1}},
		{at: 5 * time.Minute, unowned: []int{1}, want: []int{1}},
	} {
		wrong := map[int]bool{}
		for _, slot := range step.unowned {
			wrong[slot] = true
		}
		if diff := cmp.Diff(step.want, lateOf(o, member.Moment{Monotonic: step.at}, longUnowned, wrong)); diff != "" {
			t.Errorf("at %s (-want +got):\n%s", step.at, diff)
		}
	}
}

// A slot Lease is emptied by hand, and the API server refuses every acquisition of the slot.
func TestLeaderReportsUnownedSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		const lease, slot = "fleet-slot-003", 3
		a := begin(t, server, "fleet-0")
		wantAll(t, time.Minute, a)
		b := begin(t, server, "fleet-1")
		wantAll(t, time.Minute, a, b)
		server.Fault(func(r apiserver.Request) error {
			if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, lease) && acquires(t, r) {
				return errors.New("refused")
			}
			return nil
		})
		if !server.Edit(lease, func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = nil }) {
			t.Fatal("there is no Lease " + lease)
		}
		time.Sleep(longUnowned - time.Second)
		if n := len(a.reported); n > 0 {
			t.Errorf("%d reports too early", n)
		}
		time.Sleep(2 * time.Minute)
		for range 2 { // without success, and once more
			if diff := cmp.Diff(unowned{[]int{slot}, true}, <-a.reported); diff != "" {
				t.Errorf("reported (-want +got):\n%s", diff)
			}
		}
		if others, more := len(b.reported), len(a.reported); others+more > 0 {
			t.Errorf("%d reports more, and %d by a replica that does not lead", more, others)
		}
		server.Fault(nil)
		wantAll(t, time.Minute, a, b)
	})
}

// acquires reports whether a request writes a holder.
func acquires(t *testing.T, r apiserver.Request) bool {
	l, err := leaseIn(r.Content)
	if err != nil {
		t.Error(err)
	}
	return member.Holder(l) != ""
}

// leaseIn decodes the body of a request.
func leaseIn(body []byte) (*coordinationv1.Lease, error) {
	l := &coordinationv1.Lease{}
	_, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, l)
	return l, err
}
