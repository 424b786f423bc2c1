package apianswers

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"regexp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// Check returns a configuration whose clients reject answers that no API server has written.
func Check(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &checked{next: next} })
	return config
}

// checked is the http.RoundTripper.
type checked struct{ next http.RoundTripper }

// WrappedRoundTripper returns the transport below, through which client-go finds the connections to
// close.
func (c *checked) WrappedRoundTripper() http.RoundTripper { return c.next }

// RoundTrip sends a request, and returns an answer of an API server, or the status 502. Errors:
// those of the transport below, also while the beginning of the answer is read.
func (c *checked) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := c.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	isWatch := r.URL.Query().Get("watch") != "" && !isError(answer)
	is, err := isWritten(answer, isWatch)
	if err == nil && is {
		return answer, nil
	}
	_ = answer.Body.Close()
	if err != nil {
		return nil, err
	}
	return rejection(answer), nil
}

func isError(answer *http.Response) bool {
	return answer.StatusCode < http.StatusOK || answer.StatusCode > http.StatusPartialContent
}

// firstBytes is how much of a body suffices to decide on it.
const firstBytes = 64

var (
	// The first field of an object is its kind, or its apiVersion where the API server sorts fields.
	objectJSON = regexp.MustCompile(`^\s*\{\s*"(kind|apiVersion)"\s*:`)
	statusJSON = regexp.MustCompile(`^\s*\{\s*("apiVersion"\s*:\s*"v1"\s*,\s*)?"kind"\s*:\s*"Status"`)
	// In protobuf the apiVersion and the kind follow the prefix of all objects.
	objectProtobuf = []byte("k8s\x00")
	statusProtobuf = []byte("\x0a\x02v1\x12\x06Status")
)

// isWritten reports whether an API server has written an answer: an object, which is a Status if
// the request has failed, or events of a watch. The body stays as it was. Errors: those of the
// connection.
func isWritten(answer *http.Response, isWatch bool) (bool, error) {
	encoding, _, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	isProtobuf := encoding == runtime.ContentTypeProtobuf
	if err != nil || !isProtobuf && encoding != runtime.ContentTypeJSON {
		return false, nil //nolint:nilerr // no type that can be read is no type of an API server
	}
	if isWatch { // its first event may come later
		return true, nil
	}
	body := bufio.NewReaderSize(answer.Body, firstBytes)
	first, err := body.Peek(firstBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	answer.Body = &readBody{Reader: body, Closer: answer.Body}
	switch failed := isError(answer); {
	case isProtobuf:
		return bytes.HasPrefix(first, objectProtobuf) && (!failed || bytes.Contains(first, statusProtobuf)), nil
	case failed:
		return statusJSON.Match(first), nil
	}
	return objectJSON.Match(first), nil
}

// readBody is a body whose beginning has been read.
type readBody struct {
	io.Reader
	io.Closer
}

// rejection returns the answer that a client gets instead of one that no API server has written. It
// is a Status, without anything of that body, and has its Retry-After.
func rejection(of *http.Response) *http.Response {
	const status = http.StatusBadGateway
	raw, _ := json.Marshal(metav1.Status{ // all of it can be encoded
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Code:     status,
		Reason:   metav1.StatusReasonServiceUnavailable,
		Message: fmt.Sprintf(
			"the answer with status %d and content type %q is no object of Kubernetes: a proxy has answered in the place of the API server, "+
				"or the API server does not serve the resource", of.StatusCode, of.Header.Get("Content-Type"),
		),
	})
	answer := &http.Response{
		Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), StatusCode: status, Proto: of.Proto, ProtoMajor: of.ProtoMajor,
		ProtoMinor: of.ProtoMinor, Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, ContentLength: int64(len(raw)),
		Body: io.NopCloser(bytes.NewReader(raw)), Request: of.Request, TLS: of.TLS,
	}
	if after := of.Header.Get("Retry-After"); after != "" {
		answer.Header.Set("Retry-After", after)
	}
	return answer
}
