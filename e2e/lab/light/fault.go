package light

import (
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Fault describes a fault of an API server. The zero value is nothing.
type Fault struct {
	// Throttled has each request answered with 429, and a Retry-After of 1 s.
	Throttled bool `json:"throttled,omitempty"`
	// DelayMillis is how long the answer of each request is delayed, at most until the fault ends;
	// negative means without limit.
	DelayMillis int64 `json:"delayMillis,omitempty"`
	// Nodes is how many Nodes of 4 kB each list of Nodes has, in pages as the client requests them;
	// none of them exists.
	Nodes int `json:"nodes,omitempty"`
	// AnswerBytes is the size of a Node that each list of Nodes has in the place of the others.
	AnswerBytes int64 `json:"answerBytes,omitempty"`
	// Events has each watch of Nodes deliver changes of a Node that does not exist, without a pause,
	// until the fault ends.
	Events bool `json:"events,omitempty"`
}

// SetFault sets what is wrong with the API server for the requests from now on.
func (c *Cluster) SetFault(fault Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = fault
	close(c.changed)
	c.changed = make(chan struct{})
}

// delay waits as the fault says. Errors: the request is not executed.
func (c *Cluster) delay(r *http.Request) error {
	c.mu.Lock()
	fault, changed := c.fault, c.changed
	c.mu.Unlock()
	if fault.Throttled {
		return apierrors.NewTooManyRequests("the API server is throttled: a fault of the lab", 1)
	}
	if fault.DelayMillis == 0 {
		return nil
	}
	var after <-chan time.Time
	if fault.DelayMillis > 0 {
		after = c.clock.After(time.Duration(fault.DelayMillis) * time.Millisecond)
	}
	select {
	case <-after:
		return nil
	case <-changed:
		return nil
	case <-r.Context().Done():
		return fmt.Errorf("wait before the answer: %w", r.Context().Err())
	}
}
