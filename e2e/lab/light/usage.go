package light

import (
	"net/http"
	"slices"
	"time"
)

// Usage counts the requests of one user.
type Usage struct {
	// Requests, also those that were refused; Watches are among them.
	Requests int64 `json:"requests"`
	// Watches that are open.
	Watches int64 `json:"watches"`
	// NodeWatches are the latest watches of Nodes that were begun, by clients with a User-Agent.
	NodeWatches []NodeWatch `json:"nodeWatches,omitempty"`
}

// NodeWatch is a watch of Nodes.
type NodeWatch struct {
	Begun     time.Time `json:"begun"`
	UserAgent string    `json:"userAgent"`
}

// mostNodeWatches is how many of them are remembered.
const mostNodeWatches = 20

// count counts a request.
func (c *Cluster) count(user string, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.usage[user]
	now.Requests++
	if r.URL.Query().Get("watch") != "" {
		now.Watches++
		if r.URL.Path == nodesPath {
			now.NodeWatches = append(now.NodeWatches, NodeWatch{Begun: c.clock.Now(), UserAgent: r.UserAgent()})
			now.NodeWatches = now.NodeWatches[max(0, len(now.NodeWatches)-mostNodeWatches):]
		}
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
	all := map[string]Usage{}
	for user, usage := range c.usage {
		usage.NodeWatches = slices.Clone(usage.NodeWatches)
		all[user] = usage
	}
	return all
}
