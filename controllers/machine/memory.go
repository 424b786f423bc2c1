package machine

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
)

// remembered is what this process remembers of one machine. Each field may be lost at any time, which costs a request; its zero value
// means that nothing is known.
type remembered struct {
	trouble trouble        // the errors of API servers that keep the machine from its next step
	ending  ending         // its VM, which the cloud is deleting
	proven  string         // the provider ID of a VM that the cloud has shown to have the machine's UID
	rivals  nodeRivals     // what a live list has shown of other machines that name its Node
	token   *corev1.Secret // the bootstrap token that this process has made or read
	refused refusal        // what the API server has refused to have its Node carry
}

// memory has an entry of typed fields for each of many keys. An entry whose fields are all zero takes no room. Make one with newMemory;
// it is safe for concurrent use.
type memory[K, E comparable] struct {
	mu      sync.Mutex
	entries map[K]E
}

func newMemory[K, E comparable]() *memory[K, E] { return &memory[K, E]{entries: map[K]E{}} }

// of returns the entry of a key; the zero value without one.
func (m *memory[K, E]) of(key K) E {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entries[key]
}

// change has f change the entry of a key. f must not use the memory.
func (m *memory[K, E]) change(key K, f func(*E)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var none E
	entry := m.entries[key]
	if f(&entry); entry == none {
		delete(m.entries, key)
		return
	}
	m.entries[key] = entry
}

// forget drops the entry of a key.
func (m *memory[K, E]) forget(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, key)
}

// size returns how many entries there are.
func (m *memory[K, E]) size() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.entries)
}

// claim is a Node as it came back from being claimed. It stands in for the cache, which follows a Node only from then on.
type claim struct {
	node *corev1.Node
	at   time.Time
}

// forget drops all that this process remembers of a machine that is gone. It is the only place that does.
func (c *Controller) forget(m *v1alpha1.Machine) {
	c.memory.forget(m.UID)
	c.claims.forget(lifecycle.NodeName(m))
	c.machines.Forget(m.UID)
	c.drains.forget(m.UID)
	c.awaited.Forget(m.UID)
	c.writes.Forget(m.UID)
}

// forgetIfGone forgets a machine at the end of its pass if it is not known any more: the pass may have remembered something after the
// event that the machine is gone, which is the last one.
func (c *Controller) forgetIfGone(key types.NamespacedName, m *v1alpha1.Machine) {
	if now, known := c.cfg.View.Machines.Get(key); !known || now.UID != m.UID {
		c.forget(m)
	}
}
