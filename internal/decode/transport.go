package decode

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
)

// meter measures the answer of one request.
type meter struct {
	most int // bytes; 0 means that the answer is a single object
	got  int
}

type meterKey struct{}

// tooLargeError is the error of a request whose answer has more bytes than it may have.
type tooLargeError struct{ most int }

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("expected an answer of at most %d bytes, got more", e.most)
}

// IsTooLarge reports that a page with fewer objects may be read.
func (*tooLargeError) IsTooLarge() bool { return true }

// PageTransport returns an http.RoundTripper that reads no more of a page than it may have, and
// sends requests through next. It must be the last wrapper that is added: for those below, an
// answer that is too large is one that was not read to its end.
func PageTransport(next http.RoundTripper) http.RoundTripper { return &transport{next} }

// transport is the http.RoundTripper.
type transport struct{ next http.RoundTripper }

// WrappedRoundTripper returns the transport below, through which client-go finds the connections to
// close.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip sends a request, and reads the answer if it is a page. Errors: a *tooLargeError, or
// those of the transport below.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.next.RoundTrip(r)
	size := meterOf(r.Context())
	if err != nil || size == nil || answer.StatusCode != http.StatusOK {
		return answer, err
	}
	body := io.Reader(answer.Body)
	if size.most > 0 {
		body = io.LimitReader(body, int64(size.most)+1)
	}
	content, err := io.ReadAll(body)
	if closed := answer.Body.Close(); err == nil {
		err = closed
	}
	switch size.got = len(content); {
	case err != nil:
		return nil, fmt.Errorf("read the answer: %w", err)
	case size.most > 0 && size.got > size.most:
		return nil, &tooLargeError{size.most}
	}
	answer.Body = io.NopCloser(bytes.NewReader(content))
	return answer, nil
}

func meterOf(ctx context.Context) *meter {
	size, _ := ctx.Value(meterKey{}).(*meter)
	return size
}
