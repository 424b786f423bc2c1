package rollout

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkDecide decides on a rollout that waits for its machines, half of them old, with two sets
// of earlier revisions. It happens after each change of a machine.
func BenchmarkDecide(b *testing.B) {
	for _, half := range []int32{5, 50} {
		d := deployment(2 * half)
		w := worldOf(d, older("a", 3*time.Hour, 0), older("b", 2*time.Hour, 0), older("c", time.Hour, half), setOf(d, "d", half, half-1))
		v := decided(&w)
		for range 5 {
			for _, set := range v.Sets {
				w.Wrote(set)
			}
			v = decided(&w)
		}
		if v.Do != Rest {
			b.Fatalf("got %+v", v)
		}
		b.Run(fmt.Sprintf("%d-machines", 2*half), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Decide(w)
			}
		})
	}
}
