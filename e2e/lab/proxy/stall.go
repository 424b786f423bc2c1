package proxy

import (
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"k8s.io/utils/clock"
)

const (
	// stallType is the name of stall among toxics.
	stallType = "stall"
	// stallWindow is the time in which an answer counts as large: long enough for a server that is
	// short of CPU, and short enough for a connection that is busy with small answers.
	stallWindow = 100 * time.Millisecond
)

// stall is a toxic that forwards small answers and stops at a large one. All connections of a proxy
// share it; each has its own flow.
type stall struct {
	// AboveKB is how many thousand bytes may pass within about stallWindow.
	AboveKB int64 `json:"aboveKB"`
	// HoldMillis is for how long a connection that has stopped stays open; 0: until its client closes
	// it.
	HoldMillis int64 `json:"holdMillis"`
}

// flow is the state of one connection: its level, which data raises and time lowers.
type flow struct {
	level   int64
	at      time.Time
	stopped bool
	chunk   *stream.StreamChunk // accepted, and not yet passed on
}

// takes reports whether a piece of size bytes may pass. After the first that may not, none may: the
// records of TLS are numbered, so later ones cannot replace a missing one.
func (f *flow) takes(now time.Time, size, limit int64) bool {
	if passed := now.Sub(f.at); f.at.IsZero() || passed >= stallWindow {
		f.level = 0
	} else {
		f.level = max(f.level-int64(passed)*limit/int64(stallWindow), 0)
	}
	f.at = now
	f.level += size
	f.stopped = f.stopped || f.level > limit
	return !f.stopped
}

// NewState is called for each connection.
func (*stall) NewState() any { return new(flow) }

// Pipe forwards data until an answer is too large. From then on it drops data, like a network that
// loses large packets, and closes the connection after HoldMillis.
func (s *stall) Pipe(stub *toxics.ToxicStub) {
	f, ok := stub.State.(*flow)
	if !ok {
		f = new(flow)
	}
	if !s.pass(stub, f) {
		return
	}
	var over <-chan time.Time
	if s.HoldMillis > 0 {
		timer := clock.RealClock{}.NewTimer(time.Duration(s.HoldMillis) * time.Millisecond)
		defer timer.Stop()
		over = timer.C()
	}
	for {
		select {
		case <-stub.Interrupt:
			return
		case <-over:
			stub.Close()
			return
		case chunk := <-stub.Input:
			if chunk == nil {
				stub.Close()
				return
			}
		}
	}
}

// pass forwards data, and reports whether it has stopped at a large answer. Otherwise the
// connection has ended, or the toxic was interrupted.
func (s *stall) pass(stub *toxics.ToxicStub, f *flow) (stopped bool) {
	for !f.stopped {
		if f.chunk == nil {
			select {
			case <-stub.Interrupt:
				return false
			case f.chunk = <-stub.Input:
			}
			if f.chunk == nil {
				stub.Close()
				return false
			}
			if !f.takes(clock.RealClock{}.Now(), int64(len(f.chunk.Data)), 1000*s.AboveKB) {
				break
			}
		}
		select {
		case <-stub.Interrupt:
			return false
		case stub.Output <- f.chunk:
			f.chunk = nil
		}
	}
	return true
}
