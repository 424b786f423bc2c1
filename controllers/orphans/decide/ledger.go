package decide

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"
)

const (
	// Hour is the time for which a reservation counts.
	Hour = time.Hour
	// FleetFactor is how many namespaces together may reach the limit of one in an Hour. A fault of
	// all namespaces, each with a few suspects, deletes no more than that.
	FleetFactor = 10
	// MaxLimit is the largest limit: a Ledger with as many reservations as it allows is smaller than
	// 256 KiB, the maximum size of annotations.
	MaxLimit = 500
)

// Ledger has the deletions of the last Hour. Each is reserved before it is requested from the
// cloud.
type Ledger struct {
	// Write as in Record.
	Write string `json:"write,omitempty"`
	// Reserved are the ages of reservations in seconds, by namespace and key.
	Reserved map[string]map[Key]int64 `json:"reserved,omitempty"`
}

// ParseLedger returns the Ledger in an annotation; "" is an empty one. Errors: text that does not
// decode. Nothing may be deleted then.
func ParseLedger(text string) (Ledger, error) {
	var l Ledger
	if text == "" {
		return l, nil
	}
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return Ledger{}, fmt.Errorf("expected the reservations of deletions as JSON: %w; remove the annotation", err)
	}
	return l, nil
}

// Text returns the annotation.
func (l Ledger) Text() string {
	text, _ := json.Marshal(l) // numbers and texts can be encoded
	return string(text)
}

// Aged returns the Ledger after a time for which the same leader has observed it, without the
// reservations that do not count any more.
func (l Ledger) Aged(elapsed time.Duration) Ledger {
	aged := Ledger{Write: l.Write, Reserved: map[string]map[Key]int64{}}
	for namespace, reserved := range l.Reserved {
		for key, age := range reserved {
			if age = grown(max(age, 0), elapsed); age < int64(Hour/time.Second) {
				aged.reserve(namespace, key, age)
			}
		}
	}
	return aged
}

// With returns the Ledger with the reservations of another one, too, the younger of two for the
// same resource.
func (l Ledger) With(other Ledger) Ledger {
	both := l.Aged(0)
	for namespace, reserved := range other.Reserved {
		for key, age := range reserved {
			if is, has := both.Reserved[namespace][key]; !has || age < is {
				both.reserve(namespace, key, age)
			}
		}
	}
	return both
}

func (l Ledger) reserve(namespace string, key Key, age int64) {
	if l.Reserved[namespace] == nil {
		l.Reserved[namespace] = map[Key]int64{}
	}
	l.Reserved[namespace][key] = age
}

// Has reports whether a deletion is reserved.
func (l Ledger) Has(namespace string, key Key) bool {
	_, has := l.Reserved[namespace][key]
	return has
}

// Reserve returns the Ledger with reservations for the deletion of suspects. Those that are
// reserved already count once, from now on. If the others are more than the limit allows in an
// Hour, for the namespace or, FleetFactor times, for the fleet, none is reserved, and why states
// the limit.
func (l Ledger) Reserve(namespace string, suspects []Suspect, limit int) (next Ledger, why string) {
	next = l.Aged(0)
	for _, s := range suspects {
		next.reserve(namespace, s.Key(), 0)
	}
	all := 0
	for reserved := range maps.Values(next.Reserved) {
		all += len(reserved)
	}
	before := len(l.Reserved[namespace])
	switch added := len(next.Reserved[namespace]) - before; {
	case added == 0:
	case before+added > limit:
		return l,
			fmt.Sprintf("with these %d there would be %d deletions in this namespace within an hour; the limit is %d", added, before+added, limit)
	case all > FleetFactor*limit:
		return l, fmt.Sprintf("with these %d there would be %d deletions in the fleet within an hour; the limit is %d",
			added, all, FleetFactor*limit)
	}
	return next, ""
}
