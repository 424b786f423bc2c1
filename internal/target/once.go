package target

import (
	"context"
	"net/http"

	"k8s.io/client-go/rest"
)

// onceKey marks a context.
type onceKey struct{}

// Once has the requests of a client that was created with SendOnce sent once: client-go itself
// blocks the caller and retries up to ten times when an answer has a Retry-After. With Once such an
// answer is an error like others.
func Once(ctx context.Context) context.Context { return context.WithValue(ctx, onceKey{}, true) }

// SendOnce returns a config whose clients respect Once.
func SendOnce(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &once{next: next} })
	return config
}

// once is the http.RoundTripper.
type once struct{ next http.RoundTripper }

// RoundTrip removes Retry-After from an answer. The API server repeats it in the body, for callers
// that need it.
func (o *once) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := o.next.RoundTrip(r)
	if err == nil && r.Context().Value(onceKey{}) != nil {
		resp.Header.Del("Retry-After")
	}
	return resp, err
}

// WrappedRoundTripper returns the wrapped one, for client-go.
func (o *once) WrappedRoundTripper() http.RoundTripper { return o.next }
