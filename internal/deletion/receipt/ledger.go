package receipt

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
)

const (
	// Hour is the time for which a reservation counts.
	Hour = time.Hour
	// MaxLimit is the largest limit: a Ledger with as many reservations has 40 KiB, far less than an
	// object may have.
	MaxLimit = 500
)

// shown is the number of bytes of an invalid text in an error.
const shown = 256

// Ledger has when each deletion was reserved, in seconds since 1970, by a key that names the
// deletion.
type Ledger map[string]int64

// ParseLedger returns the Ledger in an annotation; "" is an empty one. Errors: text that does not
// decode. Nothing may be reserved then.
func ParseLedger(text string) (Ledger, error) {
	l := Ledger{}
	if text == "" {
		return l, nil
	}
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return nil, fmt.Errorf("expected the times of reservations as JSON, like {\"key\":1767323045}, got %q: %w; remove the annotation",
			bounded.Text(text, shown), err)
	}
	return l, nil
}

// Text returns the annotation.
func (l Ledger) Text() string {
	text, _ := json.Marshal(l) // texts and numbers can be encoded
	return string(text)
}

// Reserve returns the Ledger with reservations for deletions, in their order, as long as the limit
// allows more, and without those of the past that have ended. refused are the deletions without
// one; next is when the first reservation ends, if one is refused. The Ledger that is returned has
// to be stored, also if all are refused. limit is at least 1.
func (l Ledger) Reserve(now time.Time, keys []string, limit int) (with Ledger, refused []string, next time.Time) {
	with = Ledger{}
	for key, at := range l {
		if at = min(at, now.Unix()); now.Sub(time.Unix(at, 0)) < Hour {
			with[key] = at
		}
	}
	for _, key := range keys {
		if _, again := with[key]; !again && len(with) >= limit {
			refused = append(refused, key)
			continue
		}
		with[key] = now.Unix()
	}
	if len(refused) > 0 && len(with) > 0 {
		next = time.Unix(slices.Min(slices.Collect(maps.Values(with))), 0).Add(Hour)
	}
	return with, refused, next
}

// ParseLimit returns a limit. Errors: every text that is not a number from 0 to MaxLimit.
func ParseLimit(text string) (int, error) {
	limit, err := strconv.Atoi(text)
	if err != nil || limit < 0 || limit > MaxLimit {
		return 0, fmt.Errorf("expected a number from 0 to %d, where 0 means no limit, got %q", MaxLimit, bounded.Text(text, shown))
	}
	return limit, nil
}
