package process

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// pollInterval is how often End looks again. Whoever is not a process's parent has to ask.
const pollInterval = 20 * time.Millisecond

// End ends all processes that find finds: it asks them to (SIGTERM), and after patience makes them (SIGKILL). It finds
// them again and again until there are none, so that children which are born meanwhile are ended too. It returns the
// number of processes that it signalled.
func End(ctx context.Context, clk clock.WithTicker, patience time.Duration, find func() ([]ID, error)) (int, error) {
	asked := map[ID]bool{}
	deadline := clk.Now().Add(patience)
	ticker := clk.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		ids, err := find()
		if err != nil {
			return len(asked), err
		}
		if len(ids) == 0 {
			// Whoever was begun during the search, by one that has ended since, is found by another one.
			if ids, err = find(); err != nil || len(ids) == 0 {
				return len(asked), err
			}
		}
		for _, id := range ids {
			// A process that is gone by now needs no signal; one that cannot be signalled shows when ctx ends.
			switch {
			case clk.Now().After(deadline):
				_ = id.Signal(syscall.SIGKILL)
			case !asked[id]:
				_ = id.Signal(syscall.SIGTERM)
				_ = id.Signal(syscall.SIGCONT) // A stopped process would not notice.
			}
			asked[id] = true
		}
		select {
		case <-ctx.Done():
			return len(asked), fmt.Errorf("%d processes have not ended, process %d among them: %w", len(ids), ids[0].PID, ctx.Err())
		case <-ticker.C():
		}
	}
}
