package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// Bucket is a part of a distribution: how many durations were between From and UpTo.
type Bucket struct {
	From, UpTo time.Duration
	Count      float64
	// Mean is where in the bucket the mean of its durations is, above 0 and below 1; 0 if it is not
	// known.
	Mean float64
}

// Distribution has measured durations of a step. The zero value knows of none.
type Distribution []Bucket

// Exactly returns the distribution of a step that always takes the same time.
func Exactly(d time.Duration) Distribution { return Distribution{{From: d, UpTo: d, Count: 1}} }

// Count returns how many durations were measured.
func (d Distribution) Count() (n float64) {
	for _, b := range d {
		n += b.Count
	}
	return n
}

// Quantile returns the duration below which the share q of all durations is. It is 0 if there are
// none.
func (d Distribution) Quantile(q float64) time.Duration {
	rank := math.Min(math.Max(q, 0), 1) * d.Count()
	var last time.Duration
	for _, b := range d {
		if b.Count <= 0 {
			continue
		}
		last = b.UpTo
		if rank <= b.Count {
			return b.From + time.Duration(b.below(rank/b.Count)*float64(b.UpTo-b.From))
		}
		rank -= b.Count
	}
	return last
}

// below returns at which part of the bucket the share q of its durations is below: evenly spread
// ones have a mean in the middle, and q^k has the mean 1/(k+1).
func (b Bucket) below(q float64) float64 {
	if b.Mean == 0 {
		return q
	}
	return math.Pow(q, 1/b.Mean-1)
}

// Durations are how long the steps of machines take.
type Durations struct {
	// Create is from the creation of a Machine until its VM is recorded, and Run until its Node is
	// healthy. Without Create it has a VM at once.
	Create, Run Distribution
	// Delete is from the request to delete a Machine until nothing of it is left.
	Delete Distribution
	// Drain is the drain of a Node before its update in place, and Update from then until the agent
	// has updated it.
	Drain, Update Distribution
	// Source says where they are from, for people.
	Source string
}

// Durations that steps have in a plan if none is known: the order of its steps depends on it that
// they take some time. Such a plan has no times.
const (
	someRun    = 3 * time.Minute
	someDelete = 2 * time.Minute
	someUpdate = 5 * time.Minute
)

// strata is how many runs have durations of different parts of a distribution. It is prime.
const strata = 41

// Draw returns the duration of a step of an object in a run: the median in the run 0, and one of
// the distribution in others. The same run, step and object have the same one each time. In
// successive runs each part of the distribution is drawn once, in an order of the object's own, so
// that few runs show its median.
func (d Distribution) Draw(run int, step, name string, otherwise time.Duration) time.Duration {
	switch {
	case d.Count() == 0:
		return otherwise
	case run == 0:
		return d.Quantile(0.5)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s", step, name))
	begin, by := binary.BigEndian.Uint64(sum[:8]), 1+binary.BigEndian.Uint64(sum[8:16])%(strata-1)
	part := (begin%strata + by*uint64(run)) % strata
	return d.Quantile((float64(part) + 0.5) / strata)
}
