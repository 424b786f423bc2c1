package drainer

import (
	"sync"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
)

// detaches counts the volumes that are moving for drains of this process, to bound how many a cloud
// has to detach at the same time.
type detaches struct {
	mu       sync.Mutex
	clusters map[string]*moving // by the names of clusters
}

// moving are the volumes that move in one target cluster.
type moving struct {
	namespaces map[string]int // of owners
	drains     map[errand]movingOf
	waiting    map[errand]func() // called when more volumes may move
	freed      int               // how often the number of moving volumes has decreased
}

// movingOf are the volumes that move for a drain.
type movingOf struct {
	namespace string // of the owner
	volumes   int
}

func newDetaches() *detaches { return &detaches{clusters: map[string]*moving{}} }

// in returns the moving volumes of a cluster. The caller holds d.mu.
func (d *detaches) in(cluster *target.Cluster) *moving {
	m, ok := d.clusters[cluster.Name]
	if !ok {
		m = &moving{namespaces: map[string]int{}, drains: map[errand]movingOf{}, waiting: map[errand]func(){}}
		d.clusters[cluster.Name] = m
	}
	return m
}

// free returns how many more volumes may begin to move for owners in a namespace. A caller that
// needs more passes freed to await.
func (d *detaches) free(cluster *target.Cluster, namespace string) (volumes, freed int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.in(cluster)
	return m.free(namespace), m.freed
}

// set records how many volumes move for a drain. namespace is that of its owner.
func (d *detaches) set(cluster *target.Cluster, e errand, namespace string, volumes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.in(cluster).set(e, movingOf{namespace, volumes})
}

// reserve adds volumes to those that move for a drain, and reports whether they may begin to move;
// otherwise it adds none. A pod may have more volumes than one namespace may ever move: for it,
// room for drain.MaxDetachesOfOne suffices; otherwise it could never be removed.
func (d *detaches) reserve(cluster *target.Cluster, e errand, namespace string, volumes int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.in(cluster)
	if min(volumes, drain.MaxDetachesOfOne) > m.free(namespace) {
		return false
	}
	m.set(e, movingOf{namespace, m.drains[e].volumes + volumes})
	return true
}

// await calls wake once, when the number of moving volumes has decreased since free returned freed;
// at once if it has already. wake is called with d.mu held and must not use detaches.
func (d *detaches) await(cluster *target.Cluster, e errand, freed int, wake func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.in(cluster)
	if m.freed != freed {
		wake()
		return
	}
	m.waiting[e] = wake
}

// forget records that a drain has ended: it moves no volumes, and waits for none.
func (d *detaches) forget(e errand) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range d.clusters {
		delete(m.waiting, e)
		m.set(e, movingOf{})
	}
}

// free returns how many more volumes may begin to move for owners in a namespace. A namespace may
// have a fixed multiple of what is then left free: with 40 of 50 for one namespace, four times as
// many. So a namespace that is alone has 40, two that need all they can get have 22 each, five have
// 9 each, and for a further one some are always left. Drains that do not wait may move more than
// drain.MaxDetachesOfOne for a namespace; the excess does not reduce what others get.
func (m *moving) free(namespace string) int {
	const times = drain.MaxDetachesOfOne / (drain.MaxDetaches - drain.MaxDetachesOfOne)
	left := drain.MaxDetaches
	for _, volumes := range m.namespaces {
		left -= min(volumes, drain.MaxDetachesOfOne)
	}
	return max((times*left-m.namespaces[namespace])/(times+1), 0)
}

func (m *moving) set(e errand, now movingOf) {
	before := m.drains[e]
	m.count(before.namespace, -before.volumes)
	m.count(now.namespace, now.volumes)
	m.drains[e] = now
	if now.volumes == 0 {
		delete(m.drains, e)
	}
	if now.volumes >= before.volumes {
		return
	}
	m.freed++
	for waiter, wake := range m.waiting {
		delete(m.waiting, waiter)
		wake()
	}
}

func (m *moving) count(namespace string, volumes int) {
	m.namespaces[namespace] += volumes
	if m.namespaces[namespace] == 0 {
		delete(m.namespaces, namespace)
	}
}
