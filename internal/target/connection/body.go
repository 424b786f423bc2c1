package connection

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"sync/atomic"

	"k8s.io/utils/clock"
)

// bounded is the body of an answer that fails when it is too large, or all that are being read from
// one connection are. All of it is read before the first part is returned, so that nothing is
// decoded of one that fails, and only when the process may decode so much.
type bounded struct {
	io.ReadCloser

	ctx        context.Context //nolint:containedctx // it ends with the request
	clock      clock.Clock
	all        *inWork
	most       int64 // bytes
	isProtobuf bool
	bytes      int64
	wasRead    bool
	content    []byte // that was not returned yet
	err        error
}

// inWork counts what is being read from one connection.
type inWork struct {
	bytes   atomic.Int64
	decodes *decodes // nil are those of the process
}

// bodyOf returns the body of an answer, whose request has a context.
func (c *Connection) bodyOf(ctx context.Context, body io.ReadCloser, most int64, isProtobuf bool) *bounded {
	return &bounded{ReadCloser: body, ctx: ctx, clock: c.clock, all: &c.read, most: most, isProtobuf: isProtobuf}
}

// Read returns the next part. Errors: an answer that is too large, those of the connection, the end
// of the request while it waits.
func (b *bounded) Read(p []byte) (int, error) {
	if !b.wasRead {
		b.wasRead = true
		b.content, b.err = io.ReadAll(readerFunc(b.receive))
		if b.err == nil {
			b.err = b.count()
		}
		if b.err != nil {
			b.content = nil
		}
	}
	if len(b.content) == 0 {
		return 0, cmp.Or(b.err, io.EOF)
	}
	n := copy(p, b.content)
	b.content = b.content[n:]
	return n, nil
}

type readerFunc func(p []byte) (int, error)

// Read calls the function.
func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// receive reads from the connection, and returns an error after the most bytes, or MaxBodies of
// all.
func (b *bounded) receive(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.bytes += int64(n)
	all := b.all.bytes.Add(int64(n))
	switch {
	case b.bytes > b.most:
		return 0, fmt.Errorf("expected an answer of at most %d bytes, got a larger one", b.most)
	case all > MaxBodies:
		return 0, fmt.Errorf("expected answers of together at most %d bytes at a time, got larger ones", int64(MaxBodies))
	}
	return n, err
}

// count returns an error if there are too many values, and else when these may be decoded.
func (b *bounded) count() error {
	values, items := count(b.content, b.isProtobuf)
	if values > maxValues || items > MaxItems {
		return &tooManyValuesError{}
	}
	return cmp.Or(b.all.decodes, ofProcess).await(b.ctx, b.clock, b.all, values+len(b.content)/bytesOfValue)
}

// Close ends the answer.
func (b *bounded) Close() error {
	b.all.bytes.Add(-b.bytes)
	b.bytes, b.content, b.wasRead, b.err = 0, nil, true, io.ErrClosedPipe
	return b.ReadCloser.Close()
}
