package session

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// changeLog collects the changes of slots, to log them in one line for each kind: hundreds of slots may change at once.
type changeLog map[changeKey][]int

// changeKey is what the changes of one line have in common.
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
	log := klog.FromContext(ctx)
	for _, kind := range []protocol.Kind{protocol.Suspended, protocol.Lost, protocol.Stopped, protocol.Cancelled, protocol.Resumed, protocol.Acquired} {
		for _, from := range c.sessions(kind) {
			slots := c[changeKey{kind, from}]
			switch {
			case kind == protocol.Suspended:
				log.Info("Suspended at the fence until the session Lease is renewed", "slots", ranges(slots), "changes", len(slots))
			case kind == protocol.Lost:
				log.Info("Lost slots", "slots", ranges(slots), "changes", len(slots))
			case kind == protocol.Stopped:
				log.Info("Handing over slots", "slots", ranges(slots), "changes", len(slots))
			case kind == protocol.Cancelled:
				log.Info("Cancelled work in flight that delayed the hand-over of slots", "slots", ranges(slots), "changes", len(slots))
			case kind == protocol.Resumed:
				log.Info("Resumed slots", "slots", ranges(slots), "changes", len(slots))
			case from == "":
				log.Info("Acquired slots", "slots", ranges(slots), "changes", len(slots))
			default:
				log.Info("Took over slots", "slots", ranges(slots), "changes", len(slots), "from", from)
			}
		}
	}
	clear(c)
}

// sessions returns, sorted, the sessions that the changes of a kind name; "" stands for none.
func (c changeLog) sessions(kind protocol.Kind) (all []string) {
	for key := range c {
		if key.kind == kind {
			all = append(all, key.from)
		}
	}
	slices.Sort(all)
	return all
}

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
