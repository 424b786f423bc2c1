package session

import (
	"context"
	"sync"
)

// candidacy records whether the session may lead. The loop sets it, and the election waits for it.
type candidacy struct {
	mu      sync.Mutex
	may     bool
	changed chan struct{} // closed when may changes
}

func newCandidacy() *candidacy { return &candidacy{changed: make(chan struct{})} }

func (c *candidacy) set(may bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.may != may {
		c.may = may
		close(c.changed)
		c.changed = make(chan struct{})
	}
}

// wait returns true when the session may lead or, with may false, when it may not; it returns false
// when ctx has ended.
func (c *candidacy) wait(ctx context.Context, may bool) bool {
	for {
		c.mu.Lock()
		is, changed := c.may == may, c.changed
		c.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return false
		case is:
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}
