package aws

import (
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

const (
	// settleTime is how long after a create DescribeInstances may not show the instance. It is seconds
	// as a rule.
	settleTime = 2 * time.Minute
	// tokenTime is for how long after its Machine was created a create relies on its client token
	// alone. EC2 keeps tokens for at least 24 h; the other half is for clocks that differ, and for
	// requests that are under way.
	tokenTime = 12 * time.Hour
)

// tokenMayBeForgotten reports whether the cloud may have forgotten the client token of an earlier
// create. A Machine without a creation time was not read from an API server, and counts as new.
func tokenMayBeForgotten(m *v1alpha1.Machine, now time.Time) bool {
	return !m.CreationTimestamp.IsZero() && now.Sub(m.CreationTimestamp.Time) > tokenTime
}
