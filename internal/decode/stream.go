package decode

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// keptLine is the number of bytes that a stream keeps for its next event.
const keptLine = 64 << 10

// lines divides a watch into its events, of which an API server writes each into one line. What
// ends without a line's end, or is no object in one line, is read on until it is an object.
type lines struct{ runtime.Framer }

// NewFrameReader returns a reader of one event after the other: Read returns io.ErrShortBuffer
// while there is more of one.
func (lines) NewFrameReader(from io.ReadCloser) io.ReadCloser {
	return &lineReader{Closer: from, from: bufio.NewReader(from)}
}

type lineReader struct {
	io.Closer

	from *bufio.Reader
	line []byte // memory for an event
	rest []byte // what was not read of it
}

// Read implements io.Reader.
func (r *lineReader) Read(into []byte) (n int, err error) {
	if len(r.rest) == 0 {
		if r.rest, err = r.next(); err != nil {
			return 0, err
		}
	}
	n = copy(into, r.rest)
	if r.rest = r.rest[n:]; len(r.rest) > 0 {
		return n, io.ErrShortBuffer
	}
	return n, nil
}

// next reads an event.
func (r *lineReader) next() ([]byte, error) {
	if cap(r.line) > keptLine {
		r.line = nil
	}
	r.line = r.line[:0]
	for inOneLine := true; ; {
		part, err := r.from.ReadSlice('\n')
		r.line = append(r.line, part...)
		event := bytes.TrimSpace(r.line)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case len(event) == 0 && err == nil:
			continue
		case len(event) == 0 || err != nil && !errors.Is(err, io.EOF):
			return nil, err
		case inOneLine && bytes.HasPrefix(event, []byte(`{"`)) && bytes.HasSuffix(event, []byte(`}`)) && err == nil, json.Valid(event):
			return event, nil
		case err != nil:
			return nil, io.ErrUnexpectedEOF
		}
		inOneLine = false
	}
}

// events decodes the events of a watch, whose objects are decoded by another decoder.
type events struct{ runtime.Serializer }

// Decode is runtime.Decoder's. The object of the event shares the memory of data, as long as the
// caller decodes it before it reads the next event.
func (e events) Decode(data []byte, gvk *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	event, isEvent := into.(*metav1.WatchEvent)
	kind, rest, found := cutField(data, `{"type":"`)
	object, ends := bytes.CutSuffix(rest, []byte(`}`))
	object, follows := bytes.CutPrefix(object, []byte(`,"object":`))
	if !isEvent || !found || !ends || !follows {
		return e.Serializer.Decode(data, gvk, into)
	}
	event.Type, event.Object.Raw = kind, object
	return event, &schema.GroupVersionKind{}, nil
}
