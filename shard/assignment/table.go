package assignment

import (
	"slices"

	"github.com/buraksezer/consistent"
	"github.com/cespare/xxhash/v2"
)

// Parameters of the table: points of each replica on the ring, and how much more than the mean
// number of slots a replica may get.
const (
	points = 100
	load   = 1.25
)

// Table returns for each slot the replica that consistent hashing names. Order and repetition of
// names do not matter; without replicas all are "".
//
// The library computes a table from scratch, so the table has no history: it depends on which
// replicas there are, not on the order in which they joined. It panics without a hasher, and when
// the replicas have no room for all slots, which a load above 1 excludes.
func Table(slots int, replicas []string) []string {
	table := make([]string, max(slots, 0))
	if len(table) == 0 || len(replicas) == 0 {
		return table
	}
	names := slices.Compact(slices.Sorted(slices.Values(replicas)))
	members := make([]consistent.Member, len(names))
	for i, name := range names {
		members[i] = member(name)
	}
	ring := consistent.New(members, consistent.Config{Hasher: hasher{}, PartitionCount: len(table), ReplicationFactor: points, Load: load})
	for slot := range table {
		table[slot] = ring.GetPartitionOwner(slot).String()
	}
	return table
}

type member string

func (m member) String() string { return string(m) }

type hasher struct{}

func (hasher) Sum64(b []byte) uint64 { return xxhash.Sum64(b) }
