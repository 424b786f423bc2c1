package slotcache

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
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
	return len(g.slots) > 0 && (g.size-len(g.slots))*10 >= g.size && len(g.slots) < g.size
}

// selector selects the objects of the slots.
func selector(slots map[int]bool) string {
	var values []string
	for _, slot := range slices.Sorted(maps.Keys(slots)) {
		values = append(values, fmt.Sprint(slot))
	}
	return fmt.Sprintf("%s in (%s)", v1alpha1.LabelSlot, strings.Join(values, ","))
}

// backoff returns the backoff of a failing watch: an API server that was unavailable for a minute is tried again within seconds.
func backoff() *wait.Backoff {
	return &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 5 * time.Second}
}

// page is the number of objects in one page of a list.
const page = 500

// watchOne lists and watches until ctx ends. All lists are paged, including those after a watch has ended.
func watchOne(ctx context.Context, name string, from objectcache.Source, selector string, into cache.ReflectorStore) {
	lists := &objectcache.ListerWatcher{Source: from, Selector: selector}
	defer lists.End()
	reflector := cache.NewReflectorWithOptions(lists, nil, into,
		cache.ReflectorOptions{Name: name, TypeDescription: name, Backoff: backoff()})
	reflector.WatchListPageSize = page
	reflector.RunWithContext(ctx)
}
