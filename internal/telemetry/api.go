package telemetry

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
)

// Attributes of requests to API servers, in addition to the keys of attributes.go.
const (
	serverKey       = attribute.Key("mcf.api.server")
	verbKey         = attribute.Key("mcf.api.verb")
	resourceKey     = attribute.Key("mcf.api.resource")
	objectKey       = attribute.Key("mcf.api.name")
	addressKey      = attribute.Key("server.address")
	portKey         = attribute.Key("server.port")
	urlKey          = attribute.Key("url.full")
	methodKey       = attribute.Key("http.request.method")
	statusKey       = attribute.Key("http.response.status_code")
	requestBytesKey = attribute.Key("http.request.body.size")
	answerBytesKey  = attribute.Key("http.response.body.size")
)

// TraceRequests returns a function that wraps a transport so that each request to an API server has
// a span, below the span in the context of the request; a request without one that is recorded has
// none. server names the API server: control or target. base is the path below which it is reached.
// The span ends when the body of the answer is closed.
func TraceRequests(server, base string) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return &tracedTransport{server: server, base: strings.TrimSuffix(base, "/"), next: next}
	}
}

// tracedTransport is the http.RoundTripper.
type tracedTransport struct {
	server, base string
	next         http.RoundTripper
}

// RoundTrip sends a request. Errors: those of the transport below.
func (t *tracedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !trace.SpanFromContext(r.Context()).IsRecording() {
		return t.next.RoundTrip(r)
	}
	about := requestOf(r.Method, strings.TrimPrefix(r.URL.Path, t.base))
	ctx, span := Step(r.Context(), about.verb+" "+about.resource, trace.WithSpanKind(trace.SpanKindClient))
	span.SetAttributes(serverKey.String(t.server), methodKey.String(r.Method), verbKey.String(about.verb), text(resourceKey, about.resource))
	span.SetAttributes(about.identity()...)
	span.SetAttributes(destination(r)...)
	if r.ContentLength > 0 {
		span.SetAttributes(requestBytesKey.Int64(r.ContentLength))
	}
	answer, err := t.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		t.describeFailure(span, r, err)
		span.End()
		return answer, err
	}
	span.SetAttributes(statusKey.Int(answer.StatusCode))
	if isRefusal(answer.StatusCode, about) {
		span.SetStatus(codes.Error, http.StatusText(answer.StatusCode))
	}
	answer.Body = &tracedBody{ReadCloser: answer.Body, span: span}
	return answer, nil
}

// describeFailure records on a span why a request has no answer. A request that ends with its pass,
// or that the Fence has refused, has not failed: the next owner continues.
func (t *tracedTransport) describeFailure(span trace.Span, r *http.Request, err error) {
	kind, _ := describe(err)
	span.SetAttributes(text(errorTypeKey, kind))
	_, refused := errors.AsType[interface {
		error
		NotOurs() bool
	}](err)
	if r.Context().Err() == nil && !refused {
		span.SetStatus(codes.Error, fmt.Sprintf("no answer of the API server of the %s cluster", t.server))
	}
}

// WrappedRoundTripper returns the transport below, through which client-go finds the connections to
// close.
func (t *tracedTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// destination returns the attributes of the address of a request. The query of a URL has selectors
// and no secrets, and is as long as they are.
func destination(r *http.Request) []attribute.KeyValue {
	port, err := strconv.Atoi(r.URL.Port())
	if err != nil {
		port = 443
	}
	return []attribute.KeyValue{addressKey.String(r.URL.Hostname()), portKey.Int(port), urlKey.String(bounded.Text(r.URL.Redacted(), mostURL))}
}

// mostURL is how many bytes of a URL a span has.
const mostURL = 1024

// isRefusal reports whether a status is a failure. A conflict, an object that is gone and one that
// exists are normal answers, which each life has some of, and so is an eviction that a disruption
// budget does not allow now.
func isRefusal(status int, about request) bool {
	switch status {
	case http.StatusNotFound, http.StatusConflict, http.StatusGone:
		return false
	case http.StatusTooManyRequests:
		return about.resource != "pods/eviction"
	}
	return status >= http.StatusBadRequest
}

// tracedBody is the body of an answer, with whose end the span of the request ends.
type tracedBody struct {
	io.ReadCloser

	span trace.Span
	size atomic.Int64
	once sync.Once
}

// Read counts what was read.
func (b *tracedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.size.Add(int64(n))
	if errors.Is(err, io.EOF) {
		b.end()
	}
	return n, err //nolint:wrapcheck // io.EOF must stay what it is
}

// Close ends the span.
func (b *tracedBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

func (b *tracedBody) end() {
	b.once.Do(func() {
		b.span.SetAttributes(answerBytesKey.Int64(b.size.Load()))
		b.span.End()
	})
}

// request describes a request to an API server.
type request struct {
	verb, resource  string // the resource with its subresource: machines/status
	namespace, name string
}

// requestOf reads the path of a request below the base of an API server. What is no path of a
// resource has its first part as its resource, so that the number of different names stays small.
func requestOf(method, path string) request {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	is := request{verb: strings.ToLower(method), resource: parts[0]}
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		parts = parts[3:]
	default:
		return is
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		is.namespace, parts = parts[1], parts[2:]
	}
	is.resource = parts[0]
	if len(parts) > 1 {
		is.name = parts[1]
	}
	if len(parts) > 2 {
		is.resource += "/" + parts[2]
	}
	is.verb = verbOf(method, is.name)
	return is
}

// verbOf returns the verb of a request, as in RBAC.
func verbOf(method, name string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodGet:
		if name == "" {
			return "list"
		}
		return "get"
	}
	return strings.ToLower(method)
}

// identity returns the attributes that name the object of a request.
func (r request) identity() (attributes []attribute.KeyValue) {
	if r.namespace != "" {
		attributes = append(attributes, text(namespaceKey, r.namespace))
	}
	if r.name == "" {
		return attributes
	}
	attributes = append(attributes, text(objectKey, r.name))
	switch resource, _, _ := strings.Cut(r.resource, "/"); resource {
	case "machines":
		attributes = append(attributes, text(machineKey, r.name))
	case "nodes":
		attributes = append(attributes, text(nodeKey, r.name))
	}
	return attributes
}
