package machineset

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineset/scale"
)

// Foresee returns a set, as somebody is about to write it, with the intents that this controller would write on it next. So a
// new size and what follows from it are one write; it is as good as two, because it rests on the same version of the set.
// Where it cannot be told yet what follows, the set is returned as it is given. fades is scale.World.Fades.
func (c *Controller) Foresee(ctx context.Context, set *v1alpha1.MachineSet, fades bool) *v1alpha1.MachineSet {
	c.mu.Lock()
	known := c.known(set.UID)
	c.mu.Unlock()
	if !known.busy.TryLock() {
		return set // it is being decided about
	}
	defer known.busy.Unlock()
	w := c.observe(set)
	w.Fades = fades
	for range 2 {
		verdict := scale.Decide(w)
		switch verdict.Do { //nolint:exhaustive // what else there is to do comes first, and is for the set's own pass
		case scale.Save:
			return verdict.Set
		case scale.ListLive:
			if err := c.listLive(ctx, &w); err != nil {
				return set // it will be met again
			}
		default:
			return set
		}
	}
	return set
}

// hold keeps others from deciding about a set until the function that it returns is called.
func (c *Controller) hold(set types.UID) (release func()) {
	c.mu.Lock()
	known := c.known(set)
	c.mu.Unlock()
	known.busy.Lock()
	return known.busy.Unlock
}

// known is what this process remembers of a set. The caller holds the lock.
func (c *Controller) known(set types.UID) *done {
	known := c.done[set]
	if known == nil {
		known = &done{created: map[int64]bool{}, since: map[int64]time.Time{}, deleted: map[types.UID]bool{}}
		c.done[set] = known
	}
	return known
}

// untidy notes whether intents that are all seen done stand on a set, and returns how long they may still; 0 where there are none.
func (c *Controller) untidy(set types.UID, are bool) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, now := c.known(set), c.cfg.Clock.Now()
	switch {
	case !are:
		known.untidy = time.Time{}
		return 0
	case known.untidy.IsZero():
		known.untidy = now
	}
	return max(tidyAfter-now.Sub(known.untidy), time.Millisecond)
}
