package fence

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestWhatIsExemptIsParsedStrictly(t *testing.T) {
	for _, tc := range []struct {
		method, path string
		want         bool
	}{
		{"POST", "/api/v1/namespaces/n/events", true},
		{"PATCH", "/api/v1/namespaces/n/events/e", true},
		{"POST", "/apis/events.k8s.io/v1/namespaces/n/events", true},
		{"PATCH", "/apis/events.k8s.io/v1/namespaces/n/events/e", true},
		{"POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", true},
		{"POST", "/apis/authorization.k8s.io/v1/namespaces/n/localsubjectaccessreviews", true},
		{"POST", "/apis/authentication.k8s.io/v1/tokenreviews", true},
		{"DELETE", "/api/v1/namespaces/n/events", false},
		{"DELETE", "/api/v1/namespaces/n/events/e", false},
		{"POST", "/api/v1/namespaces/n/secrets/events", false},
		{"POST", "/api/v1/namespaces/events", false},
		{"PATCH", "/api/v1/namespaces/n/events/e/status", false},
		{"POST", "/api/v1/namespaces/n/events/../secrets", false},
		{"POST", "/api/v1//namespaces/n/events", false},
		{"POST", "/apis/machine.sapcloud.io/v1alpha1/namespaces/n/events", false},
		{"POST", "/apis/authorization.k8s.io/v1/namespaces/n/x/localsubjectaccessreviews", false},
		{"PUT", "/apis/authentication.k8s.io/v1/tokenreviews", false},
		{"PUT", "/apis/coordination.k8s.io/v1/namespaces/n/leases/l", false},
		{"POST", "/api/v1/namespaces//events", false},
		{"POST", "/api/v1/namespaces/./events", false},
		{"POST", "/api/v1/namespaces/../events", false},
		{"POST", "/other/events.k8s.io/v1/namespaces/n/events", false},
		{"DELETE", "/apis/events.k8s.io/v1/namespaces/n/events/e", false},
		{"POST", "/api", false},
		{"POST", "/apis", false},
		{"PUT", "/api/v1/namespaces/n/events/e", true},
		{"POST", "/api/v1/namespaces/n/events/e", false},
		{"POST", "/api/v1/namespaces/n/secrets", false},
		{"POST", "/api/v1/nodes/n/events", false},
		{"POST", "/apis/machine.sapcloud.io/v1alpha1/reviews", false},
		{"POST", "/other/authorization.k8s.io/v1/selfsubjectaccessreviews", false},
		{"POST", "/apis/authorization.k8s.io/v1/namespaces", false},
		{"POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews/status", false},
		{"POST", "/apis/authorization.k8s.io/v1/x/n/localsubjectaccessreviews", false},
	} {
		for _, base := range []string{"", "/clusters/a"} {
			request := httptest.NewRequest(tc.method, "http://api"+base+tc.path, nil)
			if got := exempt(request, base); got != tc.want {
				t.Errorf("%s %s%s: exempt %t, want %t", tc.method, base, tc.path, got, tc.want)
			}
		}
	}
	relative := httptest.NewRequest(http.MethodPost, "http://api/x", nil)
	relative.URL.Path = "api/v1/namespaces/n/events"
	if exempt(relative, "") {
		t.Error("a path that is not below that of the API server is exempt")
	}
}

// closes records that the body of a request was closed.
type closes struct {
	io.Reader

	closed bool
}

func (c *closes) Close() error { c.closed = true; return nil }

type fails struct{}

func (fails) RoundTrip(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }

// TestRequestWithoutAnAnswerIsNotInFlightAnyMore: the body of one that is refused is closed, and
// one that fails is not in flight.
func TestRequestWithoutAnAnswerIsNotInFlightAnyMore(t *testing.T) {
	s := newStand(t)
	body := &closes{Reader: strings.NewReader("{}")}
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://api/apis/x/v1/things", body)
	_, err := s.Transport(acceptsAll{}).RoundTrip(req) //nolint:bodyclose // there is none
	wantRefused(t, "without an ownership", err, Unowned)
	if !body.closed {
		t.Error("the body of a request that was refused is open")
	}
	req.Body = nil
	_, err = s.Transport(acceptsAll{}).RoundTrip(req) //nolint:bodyclose // there is none
	wantRefused(t, "without an ownership and a body", err, Unowned)
	ctx, done := s.own(t)
	_, err = s.Transport(fails{}).RoundTrip(req.WithContext(ctx)) //nolint:bodyclose // there is none
	done()
	if got := s.Busy(); !errors.Is(err, io.ErrUnexpectedEOF) || got != 0 {
		t.Errorf("got %v, and %d are in flight", err, got)
	}
}
