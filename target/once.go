package target

import (
	"context"
	"net/http"

	"k8s.io/client-go/rest"
)

// onceKey marks a context.
type onceKey struct{}

// Once has requests of a client that was made with SendOnce sent once: client-go by itself waits in the caller's place, and asks
// up to ten times, when an answer names a time to come again. Such an answer is then an error like others.
func Once(ctx context.Context) context.Context { return context.WithValue(ctx, onceKey{}, true) }

// SendOnce returns a config whose clients heed Once.
func SendOnce(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &once{next: next} })
	return config
}

// once is the http.RoundTripper.
type once struct{ next http.RoundTripper }

// RoundTrip takes the time to come again off an answer. The API server says it in the body, too, for those who want it.
func (o *once) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := o.next.RoundTrip(r)
	if err == nil && r.Context().Value(onceKey{}) != nil {
		resp.Header.Del("Retry-After")
	}
	return resp, err
}

// WrappedRoundTripper returns the one below, for client-go.
func (o *once) WrappedRoundTripper() http.RoundTripper { return o.next }
