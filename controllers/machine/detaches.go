package machine

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/target"
)

// detaches counts the volumes that this process has moving, so that a cloud is not asked to detach hundreds at a time.
type detaches struct {
	mu       sync.Mutex
	clusters map[*target.Cluster]*moving
}

// moving are the volumes that move in one target cluster.
type moving struct {
	total   int
	drains  map[types.UID]int    // by machine
	waiting map[types.UID]func() // drains that are to be woken when there is room
	freed   int                  // how often there was more room than before
}

func newDetaches() *detaches { return &detaches{clusters: map[*target.Cluster]*moving{}} }

// in returns the volumes of a cluster; d.mu is held.
func (d *detaches) in(cluster *target.Cluster) *moving {
	m, ok := d.clusters[cluster]
	if !ok {
		m = &moving{drains: map[types.UID]int{}, waiting: map[types.UID]func(){}}
		d.clusters[cluster] = m
	}
	return m
}

// free is how many volumes more may begin to move. Whoever has to wait for more hands freed to await.
func (d *detaches) free(cluster *target.Cluster) (volumes, freed int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.in(cluster)
	return drain.MaxDetaches - m.total, m.freed
}

// set says how many volumes move for a drain.
func (d *detaches) set(cluster *target.Cluster, machine types.UID, volumes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.in(cluster).set(machine, volumes)
}

// take has further volumes of a drain begin to move, if there is room for all of them.
func (d *detaches) take(cluster *target.Cluster, machine types.UID, volumes int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.in(cluster)
	if m.total+min(volumes, drain.MaxDetaches) > drain.MaxDetaches {
		return false
	}
	m.set(machine, m.drains[machine]+volumes)
	return true
}

// await has a drain woken, once, when there is more room than free has said: at once if there was meanwhile.
func (d *detaches) await(cluster *target.Cluster, machine types.UID, freed int, wake func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.in(cluster)
	if m.freed != freed {
		wake()
		return
	}
	m.waiting[machine] = wake
}

// forget says that a drain has ended.
func (d *detaches) forget(machine types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range d.clusters {
		delete(m.waiting, machine)
		m.set(machine, 0)
	}
}

func (m *moving) set(machine types.UID, volumes int) {
	before := m.drains[machine]
	m.total += volumes - before
	m.drains[machine] = volumes
	if volumes == 0 {
		delete(m.drains, machine)
	}
	if volumes >= before {
		return
	}
	m.freed++
	for waiter, wake := range m.waiting {
		delete(m.waiting, waiter)
		wake()
	}
}
