package membership

import (
	"encoding/json"
	"fmt"
	"slices"
)

const (
	// MostFailing is how many accounts one session reports as failing.
	MostFailing = 8
	// MostAsked is how many accounts of others' reports one session reports.
	MostAsked = 32
	// mostKey bounds the name of an account, or of a class, in bytes: longer ones cannot exist.
	mostKey = 512
	// mostAccounts bounds the value of the annotation, in bytes.
	mostAccounts = 128 << 10
)

// Accounts is the report of a session about accounts at clouds, so that the leader can compare it:
// whether they can be reached may differ between replicas. The zero Accounts reports nothing.
type Accounts struct {
	// Failing are accounts, or drivers, that have not answered this session for some time.
	Failing []Account `json:"failing,omitempty"`
	// Asked are those that others report as failing, and this session does not.
	Asked []Account `json:"asked,omitempty"`
}

// Account is an account as the classes of one namespace use it, or a whole driver.
type Account struct {
	// Key identifies it in all reports.
	Key string `json:"key"`
	// Class is the MachineClass, as namespace/name, that others try a failing one with.
	Class string `json:"class,omitempty"`
	// Reached is true if one of others has just answered this session.
	Reached bool `json:"reached,omitempty"`
	// Slots are those that the session holds and whose machines need it.
	Slots SlotSet `json:"slots,omitempty"`
}

// SlotSet is a set of slots by their numbers, one bit for each.
type SlotSet []byte

// With returns the set with one slot more. It may change the set itself, as append does.
func (s SlotSet) With(slot int) SlotSet {
	for len(s) <= slot/8 {
		s = append(s, 0)
	}
	s[slot/8] |= 1 << (slot % 8)
	return s
}

// Has reports whether a slot is in the set.
func (s SlotSet) Has(slot int) bool {
	return slot >= 0 && slot/8 < len(s) && s[slot/8]&(1<<(slot%8)) != 0
}

// IsEmpty reports whether no slot is in the set.
func (s SlotSet) IsEmpty() bool { return !slices.ContainsFunc(s, func(b byte) bool { return b != 0 }) }

// IsEmpty reports whether nothing is reported.
func (a Accounts) IsEmpty() bool { return len(a.Failing)+len(a.Asked) == 0 }

// String returns the value of the annotation on the session Lease; "" for nothing.
func (a Accounts) String() string {
	if a.IsEmpty() {
		return ""
	}
	text, err := json.Marshal(a)
	if err != nil {
		return "" // impossible: the fields are strings and bytes
	}
	return string(text)
}

// ParseAccounts parses the annotation of a session Lease. A session without it runs a version that
// does not report accounts, or has nothing to report. Errors: an invalid value; the session then
// counts as one that reports nothing.
func ParseAccounts(text string) (Accounts, error) {
	if text == "" {
		return Accounts{}, nil
	}
	var a Accounts
	if len(text) > mostAccounts {
		return Accounts{}, fmt.Errorf("accounts: expected at most %d bytes, got %d", mostAccounts, len(text))
	}
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return Accounts{}, fmt.Errorf("accounts: expected JSON with failing and asked, got %q: %w", text, err)
	}
	if len(a.Failing) > MostFailing || len(a.Asked) > MostAsked {
		return Accounts{}, fmt.Errorf("accounts: expected at most %d failing and %d asked, got %d and %d",
			MostFailing, MostAsked, len(a.Failing), len(a.Asked))
	}
	for _, one := range slices.Concat(a.Failing, a.Asked) {
		if one.Key == "" || len(one.Key) > mostKey || len(one.Class) > mostKey {
			return Accounts{}, fmt.Errorf("accounts: expected keys of 1 to %d bytes, got %d, of class %d", mostKey, len(one.Key), len(one.Class))
		}
	}
	return a, nil
}
