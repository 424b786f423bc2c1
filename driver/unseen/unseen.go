// Package unseen decides whether a VM may exist that its cloud does not show yet: clouds answer
// with the state of some seconds ago, and soon after a create the absence of a VM in such an answer
// proves nothing.
package unseen

import (
	"encoding/json"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// note is the note of a driver on a Machine, in LastKnownState.
type note struct {
	// Requested is when the last create was sent that may have created a VM.
	Requested time.Time `json:"requested"`
}

// Note returns the note of a create that is sent at a time. A driver returns it as LastKnownState
// if a VM may follow.
func Note(at time.Time) string {
	text, err := json.Marshal(note{at.UTC()})
	if err != nil { // a year of more than four digits
		return ""
	}
	return string(text)
}

// MayFollow reports whether a create that failed with a code may have created a VM.
func MayFollow(code driver.Code) bool {
	return code == driver.Unknown || code == driver.Canceled || code == driver.DeadlineExceeded || code == driver.Unavailable ||
		code == driver.Internal
}

// RequestedAt returns when the last create of a Machine was sent, as far as that was recorded; the
// zero time if it was not.
func RequestedAt(m *v1alpha1.Machine) time.Time {
	var n note
	if json.Unmarshal([]byte(m.Status.LastKnownState), &n) != nil {
		return time.Time{}
	}
	return n.Requested
}

// IsRecent reports whether a time on a Machine is less than d ago; now is driver.Now. A time to
// come counts as well if it is near.
func IsRecent(at, now time.Time, d time.Duration) bool { return !at.IsZero() && now.Sub(at).Abs() < d }

// MayBe reports whether a VM of the Machine may exist that the cloud, which shows each within d,
// does not show yet. A Machine whose create was not recorded, because the process ended in the
// call, counts from its own creation.
func MayBe(m *v1alpha1.Machine, now time.Time, d time.Duration) bool {
	return IsRecent(RequestedAt(m), now, d) || IsRecent(m.CreationTimestamp.Time, now, d)
}
