package session

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// changeLog collects the changes of slots, to log them in one line for each kind: hundreds of slots
// may change at once.
type changeLog map[changeKey][]int

// changeKey has what the changes of one line have in common.
type changeKey struct {
	kind protocol.Kind
	from string // of slots that were taken over: the dead session
}

func (c changeLog) add(change protocol.Change) {
	key := changeKey{kind: change.Kind, from: change.From}
	c[key] = append(c[key], change.Slot)
}

// flush logs what was collected.
func (c changeLog) flush(ctx context.Context) {
	keys := slices.SortedFunc(maps.Keys(c), func(a, b changeKey) int {
		return cmp.Or(cmp.Compare(slices.Index(logOrder, a.kind), slices.Index(logOrder, b.kind)), cmp.Compare(a.from, b.from))
	})
	for _, key := range keys {
		log := klog.FromContext(ctx).WithValues("slots", ranges(c[key]), "changes", len(c[key]))
		switch key.kind {
		case protocol.Suspended:
			log.Info("Suspended at the fence until the session Lease is renewed")
		case protocol.Lost:
			log.Info("Lost slots")
		case protocol.Stopped:
			log.Info("Handing over slots")
		case protocol.Cancelled:
			log.Info("Cancelled work in flight that delayed the hand-over of slots")
		case protocol.Resumed:
			log.Info("Resumed slots")
		case protocol.Acquired:
			if key.from == "" {
				log.Info("Acquired slots")
			} else {
				log.Info("Took over slots", "from", key.from)
			}
		}
	}
	clear(c)
}

// logOrder is the order in which changes are logged.
var logOrder = []protocol.Kind{protocol.Suspended, protocol.Lost, protocol.Stopped, protocol.Cancelled, protocol.Resumed, protocol.Acquired}

// ranges returns the numbers of slots in short form: 0-3,7.
func ranges(numbers []int) string {
	if slices.Contains(numbers, protocol.Everything) {
		return "all"
	}
	numbers = slices.Compact(slices.Sorted(slices.Values(numbers)))
	var parts []string
	for i := 0; i < len(numbers); {
		last := i
		for last+1 < len(numbers) && numbers[last+1] == numbers[last]+1 {
			last++
		}
		part := strconv.Itoa(numbers[i])
		if last > i {
			part += "-" + strconv.Itoa(numbers[last])
		}
		parts = append(parts, part)
		i = last + 1
	}
	return strings.Join(parts, ",")
}
