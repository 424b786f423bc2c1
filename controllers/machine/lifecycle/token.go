package lifecycle

import (
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

const (
	// maxTokenLife is the longest time for which a bootstrap token is valid after a write of it. A
	// client that can read the user data of a VM has its token, so a creation timeout of days must not
	// result in a token of days.
	maxTokenLife = time.Hour
	// minTokenLife keeps a token that has to be prolonged from being written all the time, however
	// little time the machine has.
	minTokenLife = 10 * time.Minute
)

// TokenLife returns for how long the machine's bootstrap token is valid after a write of it: the
// creation timeout, and at most one hour. A machine that has to wait for longer has its token
// prolonged.
func TokenLife(m *v1alpha1.Machine, limits Limits) time.Duration {
	return max(minTokenLife, min(machinefacts.CreationTimeout(m, limits.CreationTimeout), maxTokenLife))
}

// wantsToken reports whether the user data has a place for a bootstrap token, plain or URL-encoded.
func wantsToken(userData []byte) bool {
	return hasPlaceholder(userData, v1alpha1.PlaceholderBootstrapToken)
}

// mayHaveToken reports whether the bootstrap token may still exist. It is deleted before the
// machine is recorded as joined: so a machine that has joined has none.
func mayHaveToken(w World) bool {
	return w.Token != TokenAbsent && neverJoined(w.Machine) && !w.NoTarget
}

// MayLeaveToken reports whether a machine that was last seen like this and does not exist any more
// may have left a bootstrap token: its finalizer may have been removed before the token was
// deleted.
func MayLeaveToken(m *v1alpha1.Machine) bool {
	return neverJoined(m) || m.Annotations[v1alpha1.AnnotationTokenLeft] != ""
}

// tokenDue returns when the token of a machine that waits for its Node has to be prolonged: when
// half of its life is over and it would expire before the machine does; the zero Time means never.
// A Node that exists has its certificate, and needs no token.
func tokenDue(w World) time.Time {
	if w.Token == TokenAbsent || w.Node.State == NodePresent || len(w.Secret.UserData) > 0 && !wantsToken(w.Secret.UserData) {
		return time.Time{}
	}
	life := TokenLife(w.Machine, w.Limits)
	expiry, margin := w.TokenExpiry, life/2
	if expiry.IsZero() { // another process has created it
		if w.Token == TokenPresent {
			return time.Time{}
		}
		expiry, margin = earliestExpiry(w, life), life/4
	}
	if !expiry.Before(joinDeadline(w)) {
		return time.Time{}
	}
	return expiry.Add(-margin)
}

// vmRequestTime is more than what may pass from when a token is created or prolonged to when the VM
// is recorded that has it.
const vmRequestTime = 2 * time.Minute

// earliestExpiry returns the earliest time at which a token can expire that another process has
// created: it was created for its whole life after the machine was, and when the VM was asked for
// half of that was left.
func earliestExpiry(w World, life time.Duration) time.Time {
	created, recorded := w.Machine.CreationTimestamp.Add(life), w.Machine.Status.CurrentStatus.LastUpdateTime.Add(life/2-vmRequestTime)
	if recorded.After(created) {
		return recorded
	}
	return created
}
