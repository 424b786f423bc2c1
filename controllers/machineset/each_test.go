package machineset

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlowStart has requests take a second each, so that those of one batch are those of one
// second.
func TestSlowStart(t *testing.T) {
	for _, tc := range []struct {
		name    string
		items   int
		refused int // the first item that fails; none if it is as many as there are
		want    []int
		message string
	}{
		{"nothing", 0, 0, nil, ""},
		{"one", 1, 1, []int{1}, ""},
		{"a hundred, of which 32 at a time", 100, 100, []int{1, 2, 4, 8, 16, 32, 32, 5}, ""},
		{"the first is refused", 100, 0, []int{1}, "no (99 more were not tried)"},
		{"some are refused", 100, 5, []int{1, 2, 4}, "no (and 1 more like it) (93 more were not tried)"},
		{"the last is refused", 100, 99, []int{1, 2, 4, 8, 16, 32, 32, 5}, "no"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				items := make([]int, tc.items)
				for i := range items {
					items[i] = i
				}
				start := time.Now()
				var mu sync.Mutex
				var batches []int
				err := slowStart(items, func(i int) error {
					mu.Lock()
					for second := int(time.Since(start) / time.Second); len(batches) <= second; {
						batches = append(batches, 0)
					}
					batches[len(batches)-1]++
					mu.Unlock()
					time.Sleep(time.Second)
					if i >= tc.refused {
						return errors.New("no")
					}
					return nil
				})
				if !slices.Equal(batches, tc.want) {
					t.Errorf("batches of %v, want %v", batches, tc.want)
				}
				if message := text(err); message != tc.message {
					t.Errorf("reported %q, want %q", message, tc.message)
				}
			})
		})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return strings.TrimSpace(err.Error())
}

// One machine is tried at a time while the API server refuses them, and it shows in the condition
// that the others wait.
func TestRefusedMachinesAreTriedOneAtATime(t *testing.T) {
	onBench(t, func(b *bench) {
		b.server.Refuse("create machines", errors.New("quota"))
		b.create(100)
		b.pass(10 * time.Minute)
		if tried := b.server.Count("create machines"); tried < 5 || tried > 30 {
			t.Errorf("tried %d times in ten minutes, want one machine in each pass", tried)
		}
		conditions := b.set().Status.Conditions
		if len(conditions) != 1 || !strings.Contains(conditions[0].Message, "quota (99 more were not tried)") {
			t.Errorf("conditions %+v", conditions)
		}
		b.server.Fault(nil)
		b.pass(10 * time.Minute)
		if n := len(b.machines()); n != 100 {
			t.Errorf("%d machines were created in the end, want 100", n)
		}
	})
}

// A status that the API server rejects is written again with a back-off, and not as often as its
// changes may be written.
func TestARejectedStatusIsWrittenAgainWithABackOff(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create(1)
		b.pass(time.Minute)
		b.server.Refuse("patch machinesets/status", errors.New("no"))
		b.runs(b.machines()[0].Name)
		b.pass(10 * time.Minute)
		if tried := b.server.Count("patch machinesets/status"); tried < 5 || tried > 30 {
			t.Errorf("tried %d times in ten minutes, want about once in a minute in the end", tried)
		}
		b.server.Fault(nil)
		b.pass(time.Minute)
		if n := b.set().Status.ReadyReplicas; n != 1 {
			t.Errorf("%d ready replicas in the end, want 1", n)
		}
	})
}
