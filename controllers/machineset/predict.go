package machineset

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineset/scale"
)

// busyWait is for how long Predict waits for a pass of the set, which may wait for a cloud.
const busyWait = 500 * time.Millisecond

// Predict returns a set that is about to be written, with the intents that this controller would
// record on it next, so that new replicas and the intents for them are one write. That is as safe
// as two writes, because the intents are based on the same version of the set. Another decision
// about the set that is in progress is waited for, busyWait at most: its result would have to wait
// for that, too. The set is returned unchanged after that, and if the API server cannot be read.
// isReplaced is for scale.World.IsReplaced.
func (c *Controller) Predict(ctx context.Context, set *v1alpha1.MachineSet, isReplaced bool) *v1alpha1.MachineSet {
	defer c.forgetIfGone(set)
	c.mu.Lock()
	known := c.known(set.UID)
	c.mu.Unlock()
	wait, cancel := context.WithTimeout(ctx, busyWait)
	defer cancel()
	if known.busy.LockContext(wait) != nil {
		return set // another decision about it is in progress
	}
	defer known.busy.Unlock()
	w := c.observe(set)
	w.IsReplaced, w.MustCheckClass = isReplaced, false
	for range 2 {
		verdict := c.decide(&w)
		switch verdict.Do { //nolint:exhaustive // the other actions are left to the set's own pass
		case scale.Save:
			return verdict.Set
		case scale.ListLive:
			if err := c.listLive(ctx, &w); err != nil {
				return set // the set's own pass reports the error
			}
		default:
			return set
		}
	}
	return set
}

// lock prevents other decisions about a set until the function that it returns is called.
func (c *Controller) lock(set types.UID) (release func()) {
	c.mu.Lock()
	known := c.known(set)
	c.mu.Unlock()
	known.busy.Lock()
	return known.busy.Unlock
}

// known returns what this process has done for a set. The caller must hold c.mu.
func (c *Controller) known(set types.UID) *done {
	known := c.done[set]
	if known == nil {
		known = &done{created: map[int64]bool{}, since: map[int64]time.Time{}, deleted: map[types.UID]bool{}}
		c.done[set] = known
	}
	return known
}

// allObserved records whether the intents on a set are all observed, and returns how long they may
// remain; 0 when there are none.
func (c *Controller) allObserved(set types.UID, are bool) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, now := c.known(set), c.own.Now()
	switch {
	case !are:
		known.allObserved = time.Time{}
		return 0
	case known.allObserved.IsZero():
		known.allObserved = now
	}
	return max(keepObserved-now.Sub(known.allObserved), time.Millisecond)
}
