package connection

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync/atomic"
)

// bounded is the body of an answer that fails when it is too large, or all that are being read from
// one connection are.
type bounded struct {
	io.ReadCloser

	all  *atomic.Int64 // bytes of answers that are being read
	read int64
}

// Read reads on, and returns an error after MaxBody bytes, or MaxBodies of all.
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	all := b.all.Add(int64(n))
	switch {
	case b.read > MaxBody:
		return 0, fmt.Errorf("expected an answer of at most %d bytes, got a larger one", int64(MaxBody))
	case all > MaxBodies:
		return 0, fmt.Errorf("expected answers of together at most %d bytes at a time, got larger ones", int64(MaxBodies))
	}
	return n, err
}

// Close ends the answer.
func (b *bounded) Close() error {
	b.all.Add(-b.read)
	b.read = 0
	return b.ReadCloser.Close()
}

// events are the body of a watch, which fails when one event is too large.
type events struct {
	io.ReadCloser

	isProtobuf bool
	event      int64 // bytes of the event so far
	left       int64 // of the event, in protobuf
	header     [4]byte

	depth             int // in JSON
	inText, isEscaped bool
}

// Read reads on, and returns an error after MaxEvent bytes of one event.
func (e *events) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	next := e.json
	if e.isProtobuf {
		next = e.protobuf
	}
	if !next(p[:n]) {
		return 0, fmt.Errorf("expected events of a watch of at most %d bytes, got a larger one", int64(MaxEvent))
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
			e.event, e.left = 0, int64(binary.BigEndian.Uint32(e.header[:]))
			if e.left > MaxEvent {
				return false
			}
			continue
		}
		n := min(e.left, int64(len(part)))
		e.left -= n
		part = part[n:]
	}
	return true
}

// json reports whether events are small enough, each of which is an object. What is between them
// counts, too: a decoder keeps it.
func (e *events) json(part []byte) bool {
	for _, c := range part {
		e.event++
		switch {
		case e.isEscaped:
			e.isEscaped = false
		case e.inText:
			e.isEscaped, e.inText = c == '\\', c != '"'
		case c == '"':
			e.inText = true
		case c == '{', c == '[':
			e.depth++
		case c == '}', c == ']':
			if e.depth--; e.depth <= 0 {
				e.depth, e.event = 0, 0
			}
		}
		if e.event > MaxEvent {
			return false
		}
	}
	return true
}
