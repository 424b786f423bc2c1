package proxy

import (
	"bytes"
	"fmt"
	"sync/atomic"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

// countType is the name of counter among toxics.
const countType = "count"

// counter is a toxic that only counts the bytes of all connections of a proxy in one direction.
// Toxiproxy's own metrics count a connection when it ends, and a watch may never end.
type counter struct {
	bytes atomic.Int64
}

// waiting is the piece of one connection that has been counted, and not read by the next toxic yet.
type waiting struct {
	chunk *stream.StreamChunk
}

// NewState is called for each connection.
func (c *counter) NewState() any { return new(waiting) }

// Pipe forwards the stream. It can be interrupted also while the other side does not read, so that
// a fault can begin then.
func (c *counter) Pipe(stub *toxics.ToxicStub) {
	next, ok := stub.State.(*waiting)
	if !ok {
		next = new(waiting)
	}
	for {
		if next.chunk == nil {
			select {
			case <-stub.Interrupt:
				return
			case next.chunk = <-stub.Input:
			}
			if next.chunk == nil {
				stub.Close()
				return
			}
			c.bytes.Add(int64(len(next.chunk.Data)))
		}
		select {
		case <-stub.Interrupt:
			return
		case stub.Output <- next.chunk:
			next.chunk = nil
		}
	}
}

// count adds a counter to a proxy.
func (p *proxy) count(direction Direction) (*counter, error) {
	created, err := p.tcp.Toxics.AddToxicJson(bytes.NewReader(toxic(countType, direction, nil)))
	if err != nil {
		return nil, fmt.Errorf("counting %s: %w", direction, err)
	}
	c, ok := created.Toxic.(*counter)
	if !ok {
		return nil, fmt.Errorf("counting %s: expected a counter, got %T", direction, created.Toxic)
	}
	return c, nil
}
