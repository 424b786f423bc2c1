package supervise

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// pollInterval is how often End polls: only a parent is notified of the end of a process.
const pollInterval = 20 * time.Millisecond

// End ends all processes that find finds: first with SIGTERM, and after timeout with SIGKILL. It
// repeats the search until there are none, so that children which are started meanwhile are ended
// too. It returns the number of processes that it signalled.
func End(ctx context.Context, clk clock.WithTicker, timeout time.Duration, find func() ([]ID, error)) (int, error) {
	asked := map[ID]bool{}
	deadline := clk.Now().Add(timeout)
	ticker := clk.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		ids, err := find()
		if err != nil {
			return len(asked), err
		}
		if len(ids) == 0 {
			// A process that was started during the search, by one that has ended since, is found by the
			// next search.
			if ids, err = find(); err != nil || len(ids) == 0 {
				return len(asked), err
			}
		}
		for _, id := range ids {
			// A process that has ended needs no signal; one that cannot be signalled is reported when ctx
			// ends.
			switch {
			case clk.Now().After(deadline):
				_ = id.Signal(syscall.SIGKILL)
			case !asked[id]:
				_ = id.Signal(syscall.SIGTERM)
				_ = id.Signal(syscall.SIGCONT) // A stopped process does not handle it.
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
