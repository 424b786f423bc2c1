package replica

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
)

func TestLoadGauges(t *testing.T) {
	acts := true
	gauges := newLoadGauges(func() bool { return acts }, func() assignment.Work {
		return assignment.Work{Slots: 64, Machines: 1000, Transitions: 300, Overdue: 50}
	}, assignment.CapacityOf(200))
	want := `# HELP mcf_load The work of this replica, in units of what one replica should carry, by dimension: machines, transitions or queue. The largest of the sums over all replicas is the number of replicas that the fleet needs.
# TYPE mcf_load gauge
mcf_load{dimension="machines"} 0.25
mcf_load{dimension="queue"} 0.25
mcf_load{dimension="transitions"} 2
# HELP mcf_load_slots Slots whose work is in mcf_load: those of this replica that are open.
# TYPE mcf_load_slots gauge
mcf_load_slots 64
`
	if err := testutil.CollectAndCompare(gauges, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	// Suspended: another replica may hold the slots and report the same work.
	acts = false
	if n := testutil.CollectAndCount(gauges); n != 0 {
		t.Errorf("a suspended replica exports %d gauges, want none", n)
	}
}
