package machine

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// remembered is what this process remembers of one machine. Each field may be lost at any time, which costs a request; its zero value
// means unknown.
type remembered struct {
	lastingError lastingError // the errors of API servers that keep the machine from its next step
	ending       ending       // its VM, which the cloud is deleting
	proven       string       // the provider ID of a VM that the cloud has shown to have the machine's UID
	rivals       nodeRivals   // what a live list has shown of other machines that name its Node
	// released is the UID of the Node from which this process has removed our finalizer when it set the condition NodeTerminating. No replica adds it
	// again: only Nodes of machines that are not being deleted get it.
	released types.UID
	deletion receipt.Outcome // on the last receipt of the deletion of its VM
	// vmDeleted is true when this process has logged that the VM is deleted: a pass that fails after that finds it deleted once more.
	vmDeleted bool
	refused   refusal // the API server's rejection of a patch of its Node
	timing    timing
	evidence  evidence // of the cloud, while its Node is unreachable
}

// memory has an entry of typed fields for each of many keys. An entry whose fields are all zero is not stored. Create it with
// newMemory; it is safe for concurrent use.
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

// change calls f, which may change the entry of a key. f must not use the memory, whose lock is held.
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

// claim is a Node as the API server returned it when it was claimed. It is used until the cache shows the Node, which it does only
// after the claim.
type claim struct {
	node *corev1.Node
	at   time.Time
}

// forget drops all that this process remembers of a machine that is gone. No other function does.
func (c *Controller) forget(m *v1alpha1.Machine) {
	c.memory.forget(m.UID)
	c.claims.forget(lifecycle.NodeName(m))
	c.machines.Forget(m.UID)
	c.drains.Forget(m.UID)
	c.secrets.StopAwaiting(m.UID)
	c.tokens.Forget(m.UID)
	c.cloud.Forget(objectcache.Key(m))
	c.writes.Forget(m.UID)
}

// forgetIfGone forgets a machine at the end of its pass if the cache does not show it any more: the pass may have remembered something
// after the event that the machine is gone, and no later event would drop it.
func (c *Controller) forgetIfGone(m *v1alpha1.Machine) {
	if !c.cfg.View.Machines.Shows(m) {
		c.forget(m)
	}
}
