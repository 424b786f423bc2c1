package replica

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlotWithoutAHolderBeginsHealthTimeoutsAnew: a replica dies, and the other one, which leads
// and serves its own slots, cannot acquire those of the dead one for 20 min. A machine there that
// was unhealthy before is given up a whole timeout after that, and not at once.
func TestSlotWithoutAHolderBeginsHealthTimeoutsAnew(t *testing.T) {
	o := replicaOptions(func(o *Options) { o.Health.Timeout = 5 * time.Minute })
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t, o, 1, nil)
		defer r.end()
		r.createUnmanaged()
		r.createClass("a")
		var names []string
		for i := range 6 {
			names = append(names, r.putRoot("a", fmt.Sprint("d-", i), 2).name)
		}
		r.oracle.lost = []string{"fleet-0"} // it is not restarted
		dies := r.start("fleet-0")
		r.start("fleet-1")
		r.until("all machines run", func() bool { return r.missing() == "" && len(r.alive()) == 2 })
		r.run(time.Minute, nil) // slots move to the second one
		victim := ""
		for _, name := range names {
			if r.ownerOf("a", name) == dies {
				victim = r.namesOf(name)[0]
			}
		}
		if victim == "" {
			t.Fatal("the replica that dies has no slot with a machine")
		}
		refuses := r.network.disturb(&disturbance{
			name: "fleet-1 cannot write slot Leases", there: true, refuses: true,
			of: func(q request) bool { return q.replica == "fleet-1" && q.kind == writes && isSlotLease(q.path) },
		})
		r.setReady("False", victim)
		r.run(time.Minute, nil)
		dies.crash()
		r.run(20*time.Minute, nil)
		r.network.heal(refuses)
		begun := time.Now()
		r.until("it is replaced", func() bool { return r.uids()[victim] == "" })
		if took := time.Since(begun); took < 5*time.Minute {
			t.Errorf("it was replaced %s after its slot has a holder again, want at least its health timeout", took)
		}
		r.until("all machines run", func() bool { return r.missing() == "" })
	})
}
