package aws

import (
	"encoding/json"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

const (
	// settleTime is how long after a create DescribeInstances may not show the instance. It is seconds as a rule.
	settleTime = 2 * time.Minute
	// tokenTime is for how long after its Machine was created a create relies on its client token alone. EC2 keeps tokens for at least
	// 24 h; the other half is for clocks that differ, and for requests that are under way.
	tokenTime = 12 * time.Hour
)

// note is the driver's own note on a Machine, in LastKnownState.
type note struct {
	// Requested is when the last create was sent that may have made a VM.
	Requested time.Time `json:"requested"`
}

func (n note) String() string {
	text, err := json.Marshal(n)
	if err != nil { // a year of more than four digits
		return ""
	}
	return string(text)
}

// requestedAt returns when the last create of a Machine was sent, as far as that was recorded; the zero time if it was not.
func requestedAt(m *v1alpha1.Machine) time.Time {
	var n note
	if json.Unmarshal([]byte(m.Status.LastKnownState), &n) != nil {
		return time.Time{}
	}
	return n.Requested
}

// isSettling reports whether a create at that time may have made what the cloud does not show yet. Clocks may differ, so a time to come
// counts as well if it is near.
func isSettling(created, now time.Time) bool {
	return !created.IsZero() && now.Sub(created).Abs() < settleTime
}

// mayBeUnseen reports whether a VM of the Machine may exist that the cloud does not show yet. A Machine whose create was not recorded,
// because the process ended in the call, counts from its own creation.
func mayBeUnseen(m *v1alpha1.Machine, now time.Time) bool {
	return isSettling(requestedAt(m), now) || isSettling(m.CreationTimestamp.Time, now)
}

// tokenMayBeForgotten reports whether the cloud may have forgotten the client token of an earlier create. A Machine without a creation
// time was not read from an API server, and counts as new.
func tokenMayBeForgotten(m *v1alpha1.Machine, now time.Time) bool {
	return !m.CreationTimestamp.IsZero() && now.Sub(m.CreationTimestamp.Time) > tokenTime
}
