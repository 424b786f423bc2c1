package proxy

import (
	"testing"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

// A fault can begin while a process does not read, as when it is paused: the counter can be
// interrupted, and data that it had received is neither lost nor counted twice.
func TestInterruptWithoutReader(t *testing.T) {
	input, output := make(chan *stream.StreamChunk), make(chan *stream.StreamChunk)
	stub := toxics.NewToxicStub(input, output)
	c := new(counter)
	stub.State = c.NewState()
	wrapper := &toxics.ToxicWrapper{Toxic: c, Toxicity: 1}
	run := func() { go stub.Run(wrapper) }

	run()
	chunk := &stream.StreamChunk{Data: []byte("hello")}
	input <- chunk
	if !stub.InterruptToxic() {
		t.Fatal("it has ended")
	}
	run()
	if got := <-output; got != chunk {
		t.Errorf("%v arrives, want what was taken", got)
	}
	if got := c.bytes.Load(); got != 5 {
		t.Errorf("%d bytes counted, want 5", got)
	}
	close(input)
	if got, open := <-output; open {
		t.Errorf("%v arrives after the end", got)
	}
}
