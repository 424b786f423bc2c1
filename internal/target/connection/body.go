package connection

import (
	"cmp"
	"fmt"
	"io"
	"sync/atomic"
)

// bounded is the body of an answer that fails when it is too large, or all that are being read from
// one connection are. All of it is read before the first part is returned, so that nothing is
// decoded of one that fails.
type bounded struct {
	io.ReadCloser

	all        *inWork
	most       int64 // bytes
	isProtobuf bool
	bytes      int64
	values     int64
	wasRead    bool
	content    []byte // that was not returned yet
	err        error
}

// inWork counts what is being read from one connection.
type inWork struct{ bytes, values atomic.Int64 }

// Read returns the next part. Errors: an answer that is too large, those of the connection.
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

// count returns an error if there are too many values.
func (b *bounded) count() error {
	values, items := count(b.content, b.isProtobuf)
	b.values = int64(values)
	if all := b.all.values.Add(b.values); values > maxValues || items > MaxItems || all > maxAllValues {
		return errTooManyValues
	}
	return nil
}

// Close ends the answer.
func (b *bounded) Close() error {
	b.all.bytes.Add(-b.bytes)
	b.all.values.Add(-b.values)
	b.bytes, b.values, b.content, b.wasRead, b.err = 0, 0, nil, true, io.ErrClosedPipe
	return b.ReadCloser.Close()
}
