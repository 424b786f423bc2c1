package disruption

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/golden"
)

// The times of a fault in a cluster that is simulated minute by minute.
const (
	faultBegins = 10 * time.Minute
	faultEnds   = 100 * time.Minute
	simulated   = 8 * time.Hour
	bootTime    = 3 * time.Minute
	// badAfter is when a machine with a bad image stops being Ready.
	badAfter = 20 * time.Minute
)

// fault happens to the machines of a cluster.
type fault struct {
	name string
	// hits reports whether the machine is not Ready now because of the fault.
	hits func(now time.Duration, m *simulatedMachine) bool
	// boots reports whether a machine that is created in a zone can become Ready now.
	boots func(now time.Duration, zone string) bool
}

func during(now time.Duration) bool { return now >= faultBegins && now < faultEnds }

func faultsOfClusters() []fault {
	always := func(time.Duration, string) bool { return true }
	return []fault{
		{"one dead machine", func(now time.Duration, m *simulatedMachine) bool { return now >= faultBegins && m.number == 0 }, always},
		{
			"a zone is away for 90 min",
			func(now time.Duration, m *simulatedMachine) bool { return during(now) && m.zone == "z0" },
			func(now time.Duration, zone string) bool { return !during(now) || zone != "z0" },
		},
		{"a zone is destroyed", func(now time.Duration, m *simulatedMachine) bool {
			return now >= faultBegins && m.zone == "z0" && m.born == 0
		}, always},
		{
			"the network is away for 90 min",
			func(now time.Duration, _ *simulatedMachine) bool { return during(now) },
			func(now time.Duration, _ string) bool { return !during(now) },
		},
		{
			"a bad image for 90 min", // machines that are created later are good
			func(now time.Duration, m *simulatedMachine) bool { return m.born < faultEnds && now >= m.born+badAfter },
			always,
		},
		{
			"a rollout of a bad image", // it reaches one machine of each zone after the other, and those that are created during it
			func(now time.Duration, m *simulatedMachine) bool {
				reached := m.born
				if m.born == 0 {
					reached = faultBegins + time.Duration(m.number/3)*bootTime
				}
				return during(reached) && now >= reached+badAfter
			},
			always,
		},
	}
}

type simulatedMachine struct {
	*v1alpha1.Machine

	number int // of all machines that the cluster has had
	zone   string
	born   time.Duration
}

// simulatedCluster has one MachineDeployment in each of up to three zones, as Gardener creates
// them.
type simulatedCluster struct {
	limits      Limits
	fault       fault
	now         time.Duration
	breakers    Breakers
	disruptions map[string][]Disruption
	machines    []*simulatedMachine
	created     int
	// replaced counts the machines that were replaced; waiting those that were not Ready 1 h after the
	// fault began.
	replaced, waiting int
}

func newCluster(size int, t Thresholds, f fault) *simulatedCluster {
	c := &simulatedCluster{limits: limits(), fault: f, disruptions: map[string][]Disruption{}}
	c.limits.Thresholds = t
	for i := range size {
		c.create(fmt.Sprint("z", i%3), v1alpha1.MachineRunning)
	}
	return c
}

func (c *simulatedCluster) create(zone string, phase v1alpha1.MachinePhase) {
	m := &simulatedMachine{Machine: &v1alpha1.Machine{}, number: c.created, zone: zone, born: c.now}
	m.Name, m.Namespace, m.UID = fmt.Sprintf("m%05d", c.created), "n", types.UID(fmt.Sprint(c.created))
	m.CreationTimestamp = c.time()
	m.Status.LastOperation.Type = v1alpha1.MachineOperationCreate
	c.created++
	c.machines = append(c.machines, m)
	c.enters(m, phase)
}

func (c *simulatedCluster) time() metav1.Time { return metav1.NewTime(start.Add(c.now)) }

func (c *simulatedCluster) enters(m *simulatedMachine, phase v1alpha1.MachinePhase) {
	if m.Status.CurrentStatus.Phase == phase {
		return
	}
	m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: phase, LastUpdateTime: c.time()}
	if phase == v1alpha1.MachineRunning {
		m.Status.LastOperation.Type = v1alpha1.MachineOperationHealthCheck
	}
}

// run simulates the time of a fault and after it.
func (c *simulatedCluster) run() {
	for ; c.now < simulated && !c.isQuiet(); c.now += time.Minute {
		for _, m := range c.machines {
			switch coming := m.Status.CurrentStatus.Phase == v1alpha1.MachinePending; {
			case coming && (c.now < m.born+bootTime || !c.fault.boots(c.now, m.zone)):
			case !coming && c.fault.hits(c.now, m):
				c.enters(m, v1alpha1.MachineUnknown)
			default:
				c.enters(m, v1alpha1.MachineRunning)
			}
		}
		counts := Counts{}
		for _, m := range c.machines {
			counts.Add(Scope{Zone: m.zone}, m.Namespace, Of(m.Machine, true, c.time().Time))
		}
		total, complete := Sum(Own{0: counts}, ParseReports(nil, []string{"r"}))
		c.breakers.step(c.time().Time, c.limits.Thresholds, rank(total), complete)
		for _, zone := range []string{"z0", "z1", "z2"} {
			c.decide(zone)
		}
		if c.now == faultBegins+time.Hour {
			c.waiting = c.dead()
		}
	}
}

// decide decides on the MachineDeployment of a zone, and replaces the machines that have a
// disruption.
func (c *simulatedCluster) decide(zone string) {
	w := World{Now: c.time().Time, Limits: c.limits, Disruptions: c.disruptions[zone], Breakers: c.breakers.Snapshot()}
	for _, m := range c.machines {
		if m.zone == zone {
			w.Machines, w.Desired = append(w.Machines, Member{Machine: m.Machine, Scope: Scope{Zone: zone}}), w.Desired+1
		}
	}
	c.disruptions[zone] = Decide(w).Disruptions
	for _, d := range c.disruptions[zone] {
		c.machines = slices.DeleteFunc(c.machines, func(m *simulatedMachine) bool { return m.UID == d.UID })
		c.create(zone, v1alpha1.MachinePending)
		c.replaced++
	}
}

// dead counts the machines that are not Ready.
func (c *simulatedCluster) dead() (n int) {
	for _, m := range c.machines {
		if m.Status.CurrentStatus.Phase != v1alpha1.MachineRunning {
			n++
		}
	}
	return n
}

// isQuiet reports whether all machines are Ready and nothing happens any more.
func (c *simulatedCluster) isQuiet() bool {
	return c.now > faultEnds+badAfter && c.dead() == 0 && len(c.breakers.open) == 0
}

// sizes draws the sizes of clusters, and returns how many have each. In the largest known landscape
// the mean is 5 to 7 machines. Clusters of the same size behave in the same way, so that one of
// each is simulated.
func sizes(random *rand.Rand, clusters int) map[int]int {
	drawn := make([]int, clusters)
	for i := range drawn {
		drawn[i] = max(1, int(random.ExpFloat64()*5.5+0.5))
	}
	drawn[0] = 60
	times := map[int]int{}
	for _, size := range drawn {
		times[size]++
	}
	return times
}

// rules are the thresholds that are compared, by a name.
func rules() []rule {
	of := func(notReady int, tryAfter time.Duration) Thresholds {
		t := DefaultThresholds()
		t.NotReady, t.TryAfter = notReady, tryAfter
		return t
	}
	never := DefaultThresholds()
	never.Percent = 100
	return []rule{
		{"no circuit breaker", never},
		{"5, for good", of(5, 0)},
		{"2, for good", of(2, 0)},
		{"2, one after 2 h (default)", DefaultThresholds()},
		{"1, one after 2 h", of(1, DefaultThresholds().TryAfter)},
	}
}

type rule struct {
	name string
	Thresholds
}

// TestLandscape writes to testdata/landscape.txt how many machines are replaced in clusters of the
// sizes of a landscape, by fault and rule: the number of machines that have to be not Ready, in
// addition to their share, and what happens where a circuit breaker stays open.
func TestLandscape(t *testing.T) {
	const clusters = 150
	sizes := sizes(rand.New(rand.NewPCG(1, 1)), clusters)
	var out bytes.Buffer
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "fault of %d clusters\trule\tmachines\tnot Ready\treplaced\tnot Ready after 1 h\tafter 8 h\n", clusters)
	for _, f := range faultsOfClusters() {
		for _, rule := range rules() {
			var machines, hit, replaced, waiting, dead int
			for size, times := range sizes {
				c := newCluster(size, rule.Thresholds, f)
				for _, m := range c.machines {
					if f.hits(faultEnds-time.Minute, m) {
						hit += times
					}
				}
				c.run()
				machines, replaced = machines+times*size, replaced+times*c.replaced
				waiting, dead = waiting+times*c.waiting, dead+times*c.dead()
			}
			fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\t%d\n", f.name, rule.name, machines, hit, replaced, waiting, dead)
		}
	}
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/landscape.txt", out.String())
}
