package light

import "maps"

// Usage counts the requests of one user.
type Usage struct {
	// Requests, also those that were refused; Watches are among them.
	Requests int64 `json:"requests"`
	// Watches that are open.
	Watches int64 `json:"watches"`
}

func (c *Cluster) count(user string, isWatch bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.usage[user]
	now.Requests++
	if isWatch {
		now.Watches++
	}
	c.usage[user] = now
}

func (c *Cluster) endWatch(user string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.usage[user]
	now.Watches--
	c.usage[user] = now
}

// Usage returns what users have requested.
func (c *Cluster) Usage() map[string]Usage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.usage)
}
