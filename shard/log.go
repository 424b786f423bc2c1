package shard

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/shard/protocol"
)

// changeLog collects the changes of slots, to tell them in one line for each kind: slots come and go by the hundred.
type changeLog map[protocol.Kind][]int

func (c changeLog) add(change protocol.Change) {
	c[change.Kind] = append(c[change.Kind], change.Slot)
}

// flush tells what has come together.
func (c changeLog) flush(ctx context.Context) {
	for _, line := range []struct {
		kind protocol.Kind
		text string
	}{
		{protocol.Suspended, "The fence has passed: nothing is started until the session Lease is renewed"},
		{protocol.Lost, "Slots are not held any more"},
		{protocol.Stopped, "Slots are being handed over"},
		{protocol.Cancelled, "Slots are being handed over, and what was in flight took too long and was cancelled"},
		{protocol.Resumed, "Slots are worked on again"},
		{protocol.Acquired, "Slots were acquired"},
	} {
		if slots := c[line.kind]; len(slots) > 0 {
			klog.FromContext(ctx).Info(line.text, "slots", ranges(slots), "changes", len(slots))
		}
	}
	clear(c)
}

// ranges writes the numbers of slots shortly: 0-3,7.
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
