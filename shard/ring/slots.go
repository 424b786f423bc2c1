package ring

import (
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// Version names the hash and the table. Replicas with different versions must not work in one fleet: they would look for a key in
// different slots. A change of the results of Slots.Of or Table requires a new Version.
const Version = "1"

// MaxSlots is the largest number of slots. Each slot is a Lease.
const MaxSlots = 4096

// ShardBy is the part of a key that decides its slot.
type ShardBy string

// The values of ShardBy.
const (
	// Deployment spreads the MachineDeployments of a namespace over all slots: the root's namespace and name decide.
	Deployment ShardBy = "deployment"
	// Namespace keeps the roots of a namespace together, and so all Nodes of a target cluster with one owner.
	Namespace ShardBy = "namespace"
)

// ParseShardBy parses the value of a flag.
func ParseShardBy(text string) (ShardBy, error) {
	switch by := ShardBy(text); by {
	case Deployment, Namespace:
		return by, nil
	default:
		return "", fmt.Errorf("shard by: expected %q or %q, got %q", Deployment, Namespace, text)
	}
}

// Slots is a number of slots and the way that keys are spread over them. Both are fixed when a fleet is installed. The zero value
// has one slot.
type Slots struct {
	count int
	by    ShardBy
}

// NewSlots returns a spread over count slots, 1 to MaxSlots.
func NewSlots(count int, by ShardBy) (Slots, error) {
	if count < 1 || count > MaxSlots {
		return Slots{}, fmt.Errorf("slots: expected 1 to %d, got %d", MaxSlots, count)
	}
	if _, err := ParseShardBy(string(by)); err != nil {
		return Slots{}, err
	}
	return Slots{count: count, by: by}, nil
}

// Count returns the number of slots: they are 0 to Count-1.
func (s Slots) Count() int { return max(s.count, 1) }

// By returns the part of a key that decides its slot.
func (s Slots) By() ShardBy { return s.by }

// Of returns the slot of an object: of a root, of an object below the root if the root's name is given, or of an object that
// several roots share (a MachineClass, a Secret).
func (s Slots) Of(namespace, name string) int {
	var digest xxhash.Digest
	digest.Reset()
	write := func(text string) { _, _ = digest.WriteString(text) } // it cannot fail
	write(namespace)
	if s.by != Namespace {
		write("/")
		write(name)
	}
	return int(digest.Sum64() % uint64(s.Count()))
}
