package session

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/shard/protocol"
)

// changeLog collects the changes of slots, to log them in one line for each kind: hundreds of slots may change at once.
type changeLog map[protocol.Kind][]int

func (c changeLog) add(change protocol.Change) {
	c[change.Kind] = append(c[change.Kind], change.Slot)
}

// flush logs what was collected.
func (c changeLog) flush(ctx context.Context) {
	for _, line := range []struct {
		kind protocol.Kind
		text string
	}{
		{protocol.Suspended, "Suspended at the fence until the session Lease is renewed"},
		{protocol.Lost, "Lost slots"},
		{protocol.Stopped, "Handing over slots"},
		{protocol.Cancelled, "Cancelled work in flight that delayed the hand-over of slots"},
		{protocol.Resumed, "Resumed slots"},
		{protocol.Acquired, "Acquired slots"},
	} {
		if slots := c[line.kind]; len(slots) > 0 {
			klog.FromContext(ctx).Info(line.text, "slots", ranges(slots), "changes", len(slots))
		}
	}
	clear(c)
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
