package machinefacts

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The delays between the failures of machines of a set, one created in place of the other, are
// those of the Job controller of Kubernetes.
const (
	firstDelay   = 10 * time.Second
	longestDelay = 6 * time.Minute
)

// EarlyFailure is how long a machine has to live so that its failure has nothing to do with those
// of the machines before it.
const EarlyFailure = 10 * time.Minute

// Losses are the failures of a set's machines in a row: each machine but the first was created
// after the failure before it.
type Losses struct {
	// Count is how many have failed.
	Count int `json:"count"`
	// From is the lowest ordinal of the machines that were created after the last failure.
	From int64 `json:"from"`
	// Until is when the next machine may be created.
	Until metav1.Time `json:"until"`
	// Generation is that of the set at the last failure: what failed may succeed after a change of the
	// spec.
	Generation int64 `json:"generation"`
}

// Then returns the losses after the failure of a machine. next is the ordinal of the next machine
// that is created. Of machines that were created before the last failure, which often fail for the
// same reason at about the same time, nothing is recorded.
func (l *Losses) Then(failed, next, generation int64, now time.Time) *Losses {
	after := &Losses{Count: 1, From: next, Until: metav1.Time{Time: now}, Generation: generation}
	if !l.Lasts(generation, now) {
		return after
	}
	if failed < l.From {
		return l
	}
	after.Count += l.Count
	after.Until.Time = now.Add(delay(after.Count))
	return after
}

// delay returns how long after a failure the next machine is created.
func delay(count int) time.Duration {
	d := firstDelay
	for i := 2; i < count && d < longestDelay; i++ {
		d *= 2
	}
	return min(d, longestDelay)
}

// Lasts reports whether a failure now would be one more in the row. A time that no replica can have
// written does not count: clients can write the annotation.
func (l *Losses) Lasts(generation int64, now time.Time) bool {
	return l != nil && l.Count > 0 && l.Generation == generation && now.Sub(l.Until.Time) < EarlyFailure &&
		l.Until.Sub(now) < longestDelay+EarlyFailure
}

// Wait returns how long no machine is created; 0 when one may be.
func (l *Losses) Wait(generation int64, now time.Time) time.Duration {
	if !l.Lasts(generation, now) {
		return 0
	}
	return max(l.Until.Sub(now), 0)
}
