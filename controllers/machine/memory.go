package machine

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
)

// remembered contains what this process has recorded of one machine. Each field may be lost at any
// time, which costs a request; its zero value means unknown.
type remembered struct {
	lastingError lastingError // the errors of API servers that keep the machine from its next step
	ending       ending       // its VM, which the cloud is deleting
	proven       string       // the provider ID of a VM that the cloud has shown to have the machine's UID
	claims       nodeClaims   // what a live list has shown of other machines that name its Node
	// released is the UID of the Node from which this process has removed our finalizer when it set
	// the condition NodeTerminating. No replica adds it again: only Nodes of machines that are not
	// being deleted get it.
	released types.UID
	deletion receipt.Outcome // on the last receipt of the deletion of its VM
	// vmDeleted is true when this process has logged that the VM is deleted: a pass that fails after
	// that finds it deleted once more.
	vmDeleted bool
	refused   refusal // the API server's rejection of a patch of its Node
	timing    timing
	evidence  evidence // of the cloud, while its Node is unreachable
}

// memory has an entry of typed fields for each of many keys. An entry whose fields are all zero is
// not stored. Create it with newMemory; it is safe for concurrent use.
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

// change calls f, which may change the entry of a key. f must not use the memory, whose lock is
// held.
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

// machineMemory contains what this process has recorded of machines, by their UID.
type machineMemory struct{ *memory[types.UID, remembered] }

func newMachineMemory() *machineMemory {
	return &machineMemory{newMemory[types.UID, remembered]()}
}

// measure changes what this process has measured of the machine of a pass.
func (m *machineMemory) measure(p *pass, change func(*timing)) {
	m.change(p.world.Machine.UID, func(is *remembered) { change(&is.timing) })
}

// claim is a Node as the API server returned it when it was claimed. It is used until the cache
// shows the Node, which it does only after the claim.
type claim struct {
	node *corev1.Node
	at   time.Time
}
