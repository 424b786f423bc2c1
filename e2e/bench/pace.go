package main

import (
	"math"
	"slices"
	"time"
)

// replaced returns the times at which a replacement was finished: its new machine had run, and its
// old one was gone.
func (r *rolling) replaced() []time.Duration {
	ran, gone := slices.Sorted(slices.Values(r.ran)), slices.Sorted(slices.Values(r.gone))
	finished := make([]time.Duration, min(len(ran), len(gone)))
	for i := range finished {
		finished[i] = max(ran[i], gone[i])
	}
	return finished
}

// took is the time until the last replacement; 0 when there was none.
func (r *rolling) took() time.Duration {
	finished := r.replaced()
	if len(finished) == 0 {
		return 0
	}
	return finished[len(finished)-1]
}

// longestPause is the longest time in which nothing was finished, from the start on. The times are
// sorted.
func longestPause(finished []time.Duration) (longest time.Duration) {
	before := time.Duration(0)
	for _, at := range finished {
		longest, before = max(longest, at-before), at
	}
	return longest
}

// perMinute counts what was finished in each minute that begins with a full second, from the start
// to the end. What takes less than a minute has one. The times are sorted.
func perMinute(finished []time.Duration) (counts []int) {
	if len(finished) == 0 {
		return nil
	}
	until := func(t time.Duration) int {
		n, _ := slices.BinarySearch(finished, t)
		return n
	}
	counts = []int{until(time.Minute)}
	for from := time.Second; from+time.Minute <= finished[len(finished)-1]; from += time.Second {
		counts = append(counts, until(from+time.Minute)-until(from))
	}
	return counts
}

// unevenness returns what is finished in the median minute divided by what is finished in the
// slowest; 1 when all are equal.
func unevenness(counts []int) float64 {
	sorted := slices.Sorted(slices.Values(counts))
	if len(sorted) == 0 || sorted[0] == 0 {
		return math.Inf(1)
	}
	return float64(sorted[len(sorted)/2]) / float64(sorted[0])
}
