package assignment

import (
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// RingVersion names the hash and the table. Replicas with different versions must not work in one
// fleet: they would look for a key in different slots. A change of the results of Slots.Of or Table
// requires a new RingVersion.
const RingVersion = "1"

// MaxSlots is the largest number of slots. Each slot is a Lease.
const MaxSlots = 4096

// ShardBy is the part of a key that decides its slot.
type ShardBy string

// The values of ShardBy.
const (
	// ByDeployment spreads the MachineDeployments of a namespace over all slots: the root's namespace
	// and name decide.
	ByDeployment ShardBy = "deployment"
	// ByNamespace keeps the roots of a namespace together, and so all Nodes of a target cluster with
	// one owner.
	ByNamespace ShardBy = "namespace"
)

// ParseShardBy parses the value of a flag.
func ParseShardBy(text string) (ShardBy, error) {
	switch by := ShardBy(text); by {
	case ByDeployment, ByNamespace:
		return by, nil
	default:
		return "", fmt.Errorf("expected %q or %q, got %q", ByDeployment, ByNamespace, text)
	}
}

// Spread is a number of slots and the way that keys are spread over them. Both are fixed when a
// fleet is installed. The zero value has one slot.
type Spread struct {
	count int
	by    ShardBy
}

// NewSpread returns a spread over count slots, 1 to MaxSlots.
func NewSpread(count int, by ShardBy) (Spread, error) {
	if count < 1 || count > MaxSlots {
		return Spread{}, fmt.Errorf("slots: expected 1 to %d, got %d", MaxSlots, count)
	}
	if _, err := ParseShardBy(string(by)); err != nil {
		return Spread{}, err
	}
	return Spread{count: count, by: by}, nil
}

// Count returns the number of slots: they are 0 to Count-1.
func (s Spread) Count() int { return max(s.count, 1) }

// By returns the part of a key that decides its slot.
func (s Spread) By() ShardBy { return s.by }

// Of returns the slot of an object: of a root, of an object below the root if the root's name is
// given, or of an object that several roots share (a MachineClass, a Secret).
func (s Spread) Of(namespace, name string) int {
	var digest xxhash.Digest
	digest.Reset()
	write := func(text string) { _, _ = digest.WriteString(text) } // it cannot fail
	write(namespace)
	if s.by != ByNamespace {
		write("/")
		write(name)
	}
	return int(digest.Sum64() % uint64(s.Count()))
}
