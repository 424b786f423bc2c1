package model

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// counter is a system with a number as its state: steps add one or double it, and zero comes after
// the limit.
type counter struct {
	limit, forbidden, desired int
	trap                      int // adding stops here, and only doubling, a fault, remains
}

func (c counter) start() int { return 1 }

func (c counter) next(n int, steps []step[int]) []step[int] {
	if n != c.trap {
		steps = append(steps, step[int]{due, label{format: "one more"}, (n + 1) % c.limit})
	}
	return append(steps, step[int]{fault, label{format: "doubled"}, 2 * n % c.limit})
}

func (c counter) broken(n int) string {
	if n == c.forbidden {
		return "forbidden"
	}
	return ""
}

func (c counter) good(n int) bool       { return n == c.desired }
func (c counter) describe(n int) string { return fmt.Sprint("at ", n) }

func TestExplore(t *testing.T) {
	for _, tc := range []struct {
		name   string
		system counter
		limit  bounds
		want   finding
	}{
		{
			"every state leads to a good one",
			counter{limit: 10, forbidden: -1, trap: -1},
			bounds{},
			finding{states: 10, depth: 4, complete: true},
		},
		{
			"the shortest path is reported",
			counter{limit: 100, forbidden: 10, trap: -1},
			bounds{},
			finding{states: 15, depth: 4, broken: "forbidden", story: []string{"  one more", "  doubled", "  one more", "  doubled", "  at 10"}},
		},
		{
			"a final state is no progress",
			counter{limit: 10, forbidden: -1, desired: 0, trap: 3},
			bounds{},
			finding{states: 10, depth: 4, complete: true, broken: "no progress although no more faults occur", story: []string{
				"  at 1", "  from now on no more faults occur:", "  one more", "  one more", "  no more steps are possible",
			}},
		},
		{
			"an endless path is no progress",
			counter{limit: 3, forbidden: -1, desired: 5, trap: -1},
			bounds{},
			finding{states: 3, depth: 2, complete: true, broken: "no progress although no more faults occur", story: []string{
				"  at 1", "  from now on no more faults occur:", "  one more", "  one more", "  one more", "  and so on without end: at 1",
			}},
		},
		{
			"bounds end it",
			counter{limit: 1000, forbidden: -1, trap: -1},
			bounds{states: 20},
			finding{states: 22, depth: 5},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := explore(tc.system, tc.limit)
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(finding{})); diff != "" {
				t.Errorf("finding (-want +got):\n%s", diff)
			}
		})
	}
}
