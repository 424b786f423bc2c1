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

// grant is slots with one set of watches.
type grant struct {
	id   int   // tells grants apart, for ever
	from []int // those that it takes over from

	// Guarded by the Set's mu:
	slots    map[int]bool // that are still held
	size     int          // how many there were
	calls    []call       // to be told when it is ready
	unsynced []string     // kinds that were not listed yet
	stop     context.CancelFunc
}

// call is the wish to be told when slots are ready.
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

// replaces says that the grant takes over from another one.
func (g *grant) replaces(other *grant) bool { return slices.Contains(g.from, other.id) }

// isThin says that a tenth of what the watches select is not ours any more.
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

// backoff of a watch that fails: an API server that was away for a minute is looked at again after seconds.
func backoff() *wait.Backoff {
	return &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 5 * time.Second}
}

// page is how many objects a list asks for at a time.
const page = 500

// watchOne lists and watches until ctx ends. All lists are in pages, those after a watch has broken off too.
func watchOne(ctx context.Context, name string, from objectcache.Source, selector string, into cache.ReflectorStore) {
	lists := &objectcache.ListerWatcher{Source: from, Selector: selector}
	defer lists.End()
	reflector := cache.NewReflectorWithOptions(lists, nil, into,
		cache.ReflectorOptions{Name: name, TypeDescription: name, Backoff: backoff()})
	reflector.WatchListPageSize = page
	reflector.RunWithContext(ctx)
}
