package azure

import (
	"net/http"
	"net/url"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver/httpclient"
)

// transport sends the requests of the SDK. It gives the SDK the guarantees of package httpclient,
// which its own transport has not: requests go to the configured clouds only, regardless of what a
// link to a next page or an operation names, and answers are bounded.
type transport struct {
	client  *httpclient.Client
	hosts   map[string]bool // as in hostOf
	budgets *budgets
	tracer  trace.Tracer
}

// hostError is a request to a server that no cloud of the configuration has.
type hostError struct{}

// Error returns a message without the URL, which a cloud's answer had.
func (*hostError) Error() string {
	return "the cloud refers to a server that is not its own; requests are sent to the configured endpoints only"
}

// transportError is a request without an answer that can be used.
type transportError struct{ err error }

// Error returns the text of the cause.
func (e *transportError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *transportError) Unwrap() error { return e.err }

// Do sends a request. It is policy.Transporter's. Errors: *transportError, and a *budgetError for a
// request that was not sent.
func (t *transport) Do(req *http.Request) (*http.Response, error) {
	if !t.hosts[hostOf(req.URL)] {
		return nil, &transportError{&hostError{}}
	}
	ctx, span := t.tracer.Start(req.Context(), "azure."+Service(req), trace.WithSpanKind(trace.SpanKindClient))
	defer span.End()
	done := func(http.Header, int) {}
	if subscription, ok := subscriptionOf(req.URL.Path); ok {
		var err error
		if done, err = t.budgets.take(ctx, subscription, req.Method, needed(req)); err != nil {
			span.SetStatus(codes.Error, "the budget of the subscription is used up")
			return nil, err
		}
	}
	resp, err := t.send(req.WithContext(ctx))
	if err != nil {
		done(nil, 0)
		span.SetStatus(codes.Error, "no answer")
		return nil, &transportError{err}
	}
	done(resp.Header, resp.StatusCode)
	span.SetAttributes(attribute.Int("http.response.status_code", resp.StatusCode))
	if id := resp.Header.Get("X-Ms-Request-Id"); isName(id) { // what the cloud's support asks for
		span.SetAttributes(attribute.String("azure.request_id", id))
	}
	return resp, nil
}

// needed returns how many requests a budget must have for one: a network interface is created only
// if its VM can be created, too.
func needed(req *http.Request) int {
	if Service(req) == "nic_create" {
		return 2
	}
	return 1
}

// send sends a request and reads the answer.
func (t *transport) send(req *http.Request) (*http.Response, error) {
	limits := httpclient.One()
	if isList(req) {
		limits = httpclient.Page()
	}
	var resp *http.Response
	err := t.client.Do(req, limits, func(a httpclient.Answer) error {
		resp = a.Response(req) //nolint:bodyclose // it is in memory
		return nil
	})
	return resp, err
}

// hostOf returns scheme, host and port of a URL, the port always there.
func hostOf(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

// subscriptionOf returns the subscription that a path is about.
func subscriptionOf(path string) (subscription string, ok bool) {
	rest, ok := strings.CutPrefix(path, "/subscriptions/")
	subscription, _, _ = strings.Cut(rest, "/")
	return subscription, ok && subscription != ""
}

// isList reports whether a request is for a page of a list.
func isList(r *http.Request) bool {
	_, last, _ := resourceOf(r.URL.Path)
	return r.Method == http.MethodGet && last
}

// services are the names of resources in metrics, as Machine Controller Manager's provider has
// them.
func services() map[string]string {
	return map[string]string{
		"virtualmachines": "virtual_machine", "disks": "disk", "networkinterfaces": "nic", "images": "virtual_machine_image",
		"offertypes": "market_place_agreement",
	}
}

// resourceOf returns the service that a path is about, and whether it names all resources of a
// kind, and no single one.
func resourceOf(path string) (service string, all, ok bool) {
	_, rest, found := strings.Cut(strings.ToLower(path), "/providers/")
	if !found {
		return "", false, false
	}
	parts := strings.Split(rest, "/")
	if len(parts) < 2 {
		return "", false, false
	}
	resource := parts[1]
	switch {
	case parts[0] == "microsoft.compute" && resource == "locations":
		resource = "images"
	case parts[0] == "microsoft.marketplaceordering":
		resource = "offertypes"
	}
	service, ok = services()[resource]
	return service, len(parts) == 2, ok
}

// Service returns what a request does with a resource of the cloud's API, for metrics, such as
// virtual_machine_get: one of a few.
func Service(r *http.Request) string {
	service, all, ok := resourceOf(r.URL.Path)
	switch {
	case !ok && strings.Contains(r.URL.Path, "/oauth2/"):
		return "token_get"
	case !ok:
		return "other"
	case all:
		return service + "_list"
	}
	switch r.Method {
	case http.MethodGet:
		return service + "_get"
	case http.MethodPut:
		return service + "_create"
	case http.MethodDelete:
		return service + "_delete"
	}
	return service + "_update"
}
