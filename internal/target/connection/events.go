package connection

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

// valueBytes are the bytes that each value of an event counts more at the rate of eventsPerSecond:
// an event of few bytes can have many.
const valueBytes = 16

// events are the body of a watch, which fails when one event is too large, and is read no faster
// than those of the connection may be.
type events struct {
	io.ReadCloser

	ctx  context.Context //nolint:containedctx // it ends with the watch
	end  context.CancelFunc
	pace *Connection

	isProtobuf bool
	ended      int   // events since the last read
	values     int   // of these
	event      int64 // bytes of the event so far
	left       int64 // of the event, in protobuf
	header     [4]byte

	message  []byte  // what was read of the event, in protobuf
	document counter // in JSON
}

// eventsOf returns the body of a watch, whose request has a context.
func (c *Connection) eventsOf(ctx context.Context, body io.ReadCloser, isProtobuf bool) *events {
	ctx, end := context.WithCancel(ctx)
	return &events{ReadCloser: body, ctx: ctx, end: end, pace: c, isProtobuf: isProtobuf}
}

// Close ends the watch, also while it waits.
func (e *events) Close() error {
	e.end()
	return e.ReadCloser.Close()
}

// await returns when more events may be read. Errors: the watch has ended.
func (e *events) await() error {
	return await(e.ctx, e.pace.clock, func() time.Duration { return e.pace.events.Wait(struct{}{}, e.pace.clock.Now()) })
}

// Read reads on when the events so far allow it, and returns an error after MaxEvent bytes of one
// event.
func (e *events) Read(p []byte) (int, error) {
	if err := e.await(); err != nil {
		return 0, err
	}
	n, err := e.ReadCloser.Read(p)
	next := e.json
	if e.isProtobuf {
		next = e.protobuf
	}
	isSmall := next(p[:n])
	e.pace.events.CountTimes(struct{}{}, n+e.ended*eventBytes+e.values*valueBytes, e.pace.clock.Now())
	e.ended, e.values = 0, 0
	if !isSmall {
		return 0, fmt.Errorf("expected events of a watch of at most %d bytes and %d values, got a larger one", int64(MaxEvent), maxEventValues)
	}
	return n, err
}

// protobuf reports whether events are small enough, each of which begins with its length in 4
// bytes.
func (e *events) protobuf(part []byte) bool {
	for len(part) > 0 {
		if e.left == 0 {
			e.header[e.event] = part[0]
			part = part[1:]
			if e.event++; e.event < int64(len(e.header)) {
				continue
			}
			e.ended++
			e.event, e.left = 0, int64(binary.BigEndian.Uint32(e.header[:]))
			if e.left > MaxEvent {
				return false
			}
			continue
		}
		n := min(e.left, int64(len(part)))
		e.message = append(e.message, part[:n]...)
		part = part[n:]
		if e.left -= n; e.left == 0 {
			values := ofMessage(e.message, 0, maxEventValues)
			if values > maxEventValues {
				return false
			}
			e.values += values
			e.message = e.message[:0]
		}
	}
	return true
}

// json reports whether events are small enough, each of which is an object. What is between them
// counts, too: a decoder keeps it.
func (e *events) json(part []byte) bool {
	for _, b := range part {
		e.event++
		if e.document.next(b) {
			e.values += e.document.values
			e.event, e.document = 0, counter{}
			e.ended++
		}
		if e.event > MaxEvent || e.document.values > maxEventValues {
			return false
		}
	}
	return true
}
