package connection

import (
	"fmt"
	"io"
)

// bounded is the body of an answer that fails when it is too large.
type bounded struct {
	io.ReadCloser
	left int64
}

// Read reads on, and returns an error after MaxBody bytes.
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("expected an answer of at most %d bytes, got a larger one", int64(MaxBody))
	}
	return n, err
}
