package slotcache

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// grant is a set of slots with one watch for each kind.
type grant struct {
	id   int   // unique in the process
	from []int // IDs of the grants that it takes over from

	// Guarded by the Set's mu:
	slots    map[int]bool // slots that have not been dropped
	size     int          // number of slots when the watches began
	calls    []call       // called when the grant is ready
	unsynced []string     // kinds that have not been listed yet
	stop     context.CancelFunc
}

// call is a callback for when slots are ready.
type call struct {
	slots []int
	ready func(slots []int)
}

func newGrant(id int, calls []call, from []*grant) *grant {
	g := &grant{id: id, slots: map[int]bool{}, calls: calls}
	for _, c := range calls {
		for _, slot := range c.slots {
			g.slots[slot] = true
		}
	}
	for _, old := range from {
		g.from = append(g.from, old.id)
		maps.Copy(g.slots, old.slots)
	}
	g.size = len(g.slots)
	return g
}

// replaces reports whether the grant takes over from another one.
func (g *grant) replaces(other *grant) bool { return slices.Contains(g.from, other.id) }

// isThin reports whether at least a tenth of the slots that the watches select have been dropped.
func (g *grant) isThin() bool {
	return (g.size-len(g.slots))*10 >= g.size
}

// selector selects the objects of the slots.
func selector(slots map[int]bool) string {
	var values []string
	for _, slot := range slices.Sorted(maps.Keys(slots)) {
		values = append(values, fmt.Sprint(slot))
	}
	return fmt.Sprintf("%s in (%s)", v1alpha1.LabelSlot, strings.Join(values, ","))
}
