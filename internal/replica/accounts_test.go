package replica

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// unreachedWithin is within what time machines are served by others when a cloud does not answer a
// replica: a minute without an answer, tries and reports, and the hand-over, which waits for calls
// that hang.
const unreachedWithin = 3 * time.Minute

// clouded runs a fleet of three with roots in many slots, for tests in which clouds do not answer.
func clouded(t *testing.T, test func(r *trial)) {
	t.Helper()
	o := replicaOptions()
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t, o, 1, nil)
		defer r.end()
		r.createUnmanaged()
		for _, namespace := range servedNamespaces() {
			r.createClass(namespace)
			for i := range 8 {
				r.putRoot(namespace, fmt.Sprint("root-", i), 1)
			}
		}
		for i := range 3 {
			r.start(fmt.Sprint("fleet-", i))
		}
		r.until("the machines run", func() bool { return r.missing() == "" })
		r.run(time.Minute, nil)
		test(r)
	})
}

// grow has each root want one machine more.
func (t *trial) grow() {
	for _, r := range t.sortedRoots() {
		t.putRoot(r.namespace, r.name, r.replicas+1)
	}
}

// transitions returns how often the slots have changed hands.
func (t *trial) transitions() map[string]int64 {
	all := map[string]int64{}
	for _, lease := range t.control.List("leases") {
		if isSlotLease("/leases/" + lease.GetName()) {
			all[lease.GetName()], _, _ = unstructured.NestedInt64(lease.Object, "spec", "leaseTransitions")
		}
	}
	return all
}

// accountReports returns what the sessions report about accounts, by the names of their Leases.
func (t *trial) accountReports() map[string]member.Accounts {
	all := map[string]member.Accounts{}
	for _, lease := range t.control.List("leases") {
		if strings.Contains(lease.GetName(), "-session-") {
			report, err := member.ParseAccounts(lease.GetAnnotations()[v1alpha1.AnnotationAccounts])
			if err != nil {
				t.Error(err)
			}
			all[lease.GetName()] = report
		}
	}
	return all
}

// TestMachinesMoveFromAReplicaThatItsCloudDoesNotAnswer: the driver's process is gone, or
// hangs. The machines of that replica are served by others, it gets no further ones, and it serves
// again when its driver does.
func TestMachinesMoveFromAReplicaThatItsCloudDoesNotAnswer(t *testing.T) {
	for name, refuses := range map[string]bool{"its driver hangs": false, "its driver is gone": true} {
		t.Run(name, func(t *testing.T) {
			clouded(t, func(r *trial) {
				broken := cut("fleet-0", atCloud)
				broken.refuses = refuses
				r.network.disturb(broken)
				r.grow()
				began := time.Now()
				if !r.run(unreachedWithin, func() bool { return r.missing() == "" }) {
					r.Fatalf("after %s: %s [%s]", unreachedWithin, r.missing(), r.health())
				}
				r.Logf("served after %s", time.Since(began))
				if health := r.health(); !strings.Contains(health, "fleet-0: mcf_unreached_accounts 2") {
					r.Errorf("want the 2 accounts that fleet-0 does not reach in a metric, got %q", health)
				}
				before := r.transitions()
				r.run(10*time.Minute, nil)
				for slot, now := range r.transitions() {
					if now > before[slot]+2 { // slots without machines are moved to the idle replica
						r.Errorf("%s has changed hands %d times since", slot, now-before[slot])
					}
				}
				r.grow()
				if !r.run(serveWithin, func() bool { return r.missing() == "" }) {
					r.Errorf("changed later, after %s: %s [%s]", serveWithin, r.missing(), r.health())
				}
				r.network.heal(broken)
				if !r.run(7*time.Minute, func() bool { return r.health() == "" }) {
					r.Errorf("healed, after 7 min: %s", r.health())
				}
			})
		})
	}
}

// TestCloudAwayForAllMovesNoSlot: all replicas find out that it does not answer, and none hands
// over a slot.
func TestCloudAwayForAllMovesNoSlot(t *testing.T) {
	clouded(t, func(r *trial) {
		away := r.network.disturb(&disturbance{
			name: "the cloud is away", there: true, back: true, of: func(q request) bool { return q.place == atCloud },
		})
		r.grow()
		reached := func() bool { return strings.Contains(fmt.Sprint(r.accountReports()), "Reached:true") }
		if r.run(12*time.Minute, reached) { // in which slots move for load: new machines count more
			r.Errorf("a replica reports that it reaches the cloud: %+v", r.accountReports())
		}
		before := r.transitions()
		if r.run(7*time.Minute, reached); !maps.Equal(before, r.transitions()) {
			r.Errorf("slots have changed hands: %v, before %v", r.transitions(), before)
		}
		for name, report := range r.accountReports() {
			if len(report.Failing) == 0 || reached() {
				r.Errorf("%s reports %+v, want failing accounts, and none that is reached", name, report)
			}
		}
		if health := r.health(); health != "" {
			r.Errorf("want no replica to report that others reach it, got %q", health)
		}
		r.network.heal(away)
		if !r.run(7*time.Minute, func() bool { return r.missing() == "" }) {
			r.Errorf("healed, after 7 min: %s", r.missing())
		}
	})
}
