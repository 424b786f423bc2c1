package decide

import (
	"encoding/json"
	"math"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
)

// Record is the suspicions of one scope, as an annotation of a MachineClass has them.
type Record struct {
	// Scope is the ScopeKey of the scope that the suspicions are about. Those about another one do not
	// count.
	Scope string `json:"scope,omitempty"`
	// Write is different for each write. A process that finds another value than the one that it wrote
	// or read last has not observed the suspicions in the meantime.
	Write string `json:"write,omitempty"`
	// Suspects are the suspicions, at most MaxSuspects.
	Suspects map[Key]Entry `json:"suspects,omitempty"`
	// More is the number of further suspects of the last sweep.
	More int `json:"more,omitempty"`
}

// Entry is one suspicion.
type Entry struct {
	// Age is for how many seconds leaders have observed it.
	Age int64 `json:"age"`
	// Approved is true when a person has approved the deletion, regardless of limits.
	Approved bool `json:"approved,omitempty"`
	// Recorded is the outcome on the last receipt of the deletion; "" without one. A sweep that finds
	// the resource again records no second receipt of it.
	Recorded receipt.Outcome `json:"recorded,omitempty"`
}

// maxAge is the largest age: it exceeds all durations that it is compared with, and further
// additions do not overflow.
const maxAge = math.MaxInt32

// Duration returns the age.
func (e Entry) Duration() time.Duration { return time.Duration(e.Age) * time.Second }

// ParseRecord returns the suspicions of a scope in an annotation. Text that does not decode, and
// suspicions about another scope, are none.
func ParseRecord(text, scope string) Record {
	var r Record
	if json.Unmarshal([]byte(text), &r) != nil || r.Scope != scope || len(r.Suspects) > MaxSuspects {
		return Record{Scope: scope}
	}
	for key, entry := range r.Suspects {
		entry.Age = min(max(entry.Age, 0), maxAge)
		r.Suspects[key] = entry
	}
	return r
}

// Text returns the annotation; "" if there is no suspicion.
func (r Record) Text() string {
	if len(r.Suspects) == 0 {
		return ""
	}
	text, _ := json.Marshal(r) // numbers and texts can be encoded
	return string(text)
}

// Aged returns the record after a time for which the same leader has observed it.
func (r Record) Aged(elapsed time.Duration) Record {
	aged := r
	aged.Suspects = make(map[Key]Entry, len(r.Suspects))
	for key, entry := range r.Suspects {
		entry.Age = grown(entry.Age, elapsed)
		aged.Suspects[key] = entry
	}
	return aged
}

// grown returns an age in seconds after a time. Parts of seconds do not count.
func grown(age int64, elapsed time.Duration) int64 {
	return min(age+int64(max(elapsed, 0)/time.Second), maxAge)
}

// Next returns the record after a sweep with a complete list: suspicions whose resource is no
// suspect any more end, and new ones begin.
func (r Record) Next(suspects []Suspect, more int) Record {
	next := Record{Scope: r.Scope, Suspects: make(map[Key]Entry, len(suspects)), More: more}
	for _, s := range suspects {
		next.Suspects[s.Key()] = r.Suspects[s.Key()]
	}
	return next
}

// Approve returns the record with an approval of suspicions.
func (r Record) Approve(suspects []Suspect) Record {
	approved := r.Aged(0)
	for _, s := range suspects {
		if entry, known := approved.Suspects[s.Key()]; known {
			entry.Approved = true
			approved.Suspects[s.Key()] = entry
		}
	}
	return approved
}

// WithOutcomes returns the record with the outcomes of deletions that have receipts.
func (r Record) WithOutcomes(outcomes map[Key]receipt.Outcome) Record {
	next := r.Aged(0)
	for key, outcome := range outcomes {
		if entry, known := next.Suspects[key]; known {
			entry.Recorded = outcome
			next.Suspects[key] = entry
		}
	}
	return next
}
