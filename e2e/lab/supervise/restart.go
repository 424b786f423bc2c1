package supervise

import "time"

// Backoff is the wait before each restart of a process that ends repeatedly: none the first time,
// then First, then twice as long as the time before, at most Max. A process that has run for Stable
// begins anew.
type Backoff struct {
	First, Max, Stable time.Duration
}

// Kubelet is the back-off of kubelets.
func Kubelet() *Backoff {
	return &Backoff{First: 10 * time.Second, Max: 5 * time.Minute, Stable: 10 * time.Minute}
}

// wait is the time before the next restart, after so many.
func (b *Backoff) wait(restarts int) time.Duration {
	if restarts == 0 {
		return 0
	}
	wait := b.First
	for range restarts - 1 {
		if wait *= 2; wait >= b.Max {
			break
		}
	}
	return min(wait, b.Max)
}

// resetRestarts resets the count of restarts.
func (c *child) resetRestarts() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.restarts = 0
}

// nextWait counts a restart after a life that has ended, and returns when it is due.
func (c *child) nextWait(l *life) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clock.Since(l.startedAt) >= c.spec.Restart.Stable {
		c.restarts = 0
	}
	c.restarts++
	return c.spec.Restart.wait(c.restarts - 1)
}

// comeBack restarts a process whose life has ended, unless an action decides about it.
func (s *Supervisor) comeBack(c *child, l *life) {
	for c.spec.Restart != nil && !l.isSettled() {
		timer := c.clock.NewTimer(c.nextWait(l))
		select {
		case <-l.settled:
		case <-timer.C():
			// A failed start (its program is being replaced, for example) is retried after the next wait.
			c.acting.Lock()
			if !l.isSettled() {
				_ = s.start(c)
			}
			c.acting.Unlock()
		}
		timer.Stop()
	}
}
