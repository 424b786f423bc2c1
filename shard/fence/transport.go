package fence

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Guard returns a configuration whose clients check their ownership before each mutating request.
// It must be the last wrapper that is added, so that as little time as possible passes between the
// check and the send.
//
// Errors: an invalid address.
func (f *Fence) Guard(config *rest.Config) (*rest.Config, error) {
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("read the address of the API server: %w", err)
	}
	guarded := rest.CopyConfig(config)
	base := strings.TrimSuffix(server.Path, "/")
	inner := guarded.WrapTransport
	guarded.WrapTransport = func(rt http.RoundTripper) http.RoundTripper {
		guard := &guard{
			fence: f, next: rt,
			exempt:    func(r *http.Request) bool { return exempt(r, base) },
			isOfUsers: func(r *http.Request, o Ownership) bool { return changesDeployment(r, base, o.namespace) },
		}
		if inner == nil {
			return guard
		}
		return inner(guard)
	}
	return guarded, nil
}

// Transport checks like Guard, for the HTTP clients of drivers. Nothing is exempt.
func (f *Fence) Transport(next http.RoundTripper) http.RoundTripper {
	return &guard{
		fence: f, next: next, exempt: func(*http.Request) bool { return false }, isOfUsers: func(*http.Request, Ownership) bool { return false },
	}
}

// guard is the http.RoundTripper.
type guard struct {
	fence  *Fence
	next   http.RoundTripper
	exempt func(r *http.Request) bool
	// isOfUsers reports whether a request is one that ForUser is for.
	isOfUsers func(r *http.Request, o Ownership) bool
}

// RoundTrip sends a request if its ownership permits it. Errors: a *RefusedError, or those of the
// transport below.
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	owned := ownershipOf(r.Context())
	sent := r.Clone(r.Context()) // the caller may send the request again
	sent.Header.Set("User-Agent", g.fence.userAgent(owned))
	if !mutates(r.Method) || g.exempt(r) {
		return g.next.RoundTrip(sent)
	}
	what := r.Method + " " + r.URL.Path
	if owned.kind == ofUser && !g.isOfUsers(r, owned) {
		closeBody(r)
		return nil, g.fence.refuse(what, owned, Unowned)
	}
	done, why := g.fence.begin(owned, write)
	if why != "" {
		closeBody(r)
		return nil, g.fence.refuse(what, owned, why)
	}
	late, answered := g.fence.faultPoint.here(r.Context(), what, owned)
	if late != r.Context() {
		sent = sent.WithContext(late)
	}
	answer, err := g.next.RoundTrip(sent)
	answered()
	if err != nil {
		done()
		return nil, err
	}
	answer.Body = &countedBody{ReadCloser: answer.Body, done: sync.OnceFunc(done)}
	return answer, nil
}

// WrappedRoundTripper returns the transport below, through which client-go finds the connections to
// close.
func (g *guard) WrappedRoundTripper() http.RoundTripper { return g.next }

func (f *Fence) refuse(what string, under Ownership, why Refusal) *RefusedError {
	f.refusals.WithLabelValues(string(why)).Inc()
	return &RefusedError{What: what, Under: under.String(), Why: why}
}

// userAgent returns the User-Agent: the replica, its session, and the ownership.
func (f *Fence) userAgent(o Ownership) string {
	detail := o.String()
	if detail != "" {
		detail = "; " + detail
	}
	return fmt.Sprintf("machine-controller-fleet/%s (session=%s%s)", f.replica, f.session, detail)
}

func mutates(method string) bool {
	switch method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return true
	}
	return false
}

// exempt reports whether a request to an API server needs no ownership: it writes an Event, or asks
// for a review. base is the path below which the server is reached.
func exempt(r *http.Request, base string) bool {
	path, below := strings.CutPrefix(r.URL.Path, base+"/")
	parts := strings.Split(path, "/")
	if !below || slices.ContainsFunc(parts, func(part string) bool { return part == "" || part == "." || part == ".." }) {
		return false
	}
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		return isEvent(r.Method, parts[2:])
	case len(parts) >= 4 && parts[0] == "apis" && parts[1] == "events.k8s.io":
		return isEvent(r.Method, parts[3:])
	case len(parts) >= 4 && parts[0] == "apis" && (parts[1] == "authorization.k8s.io" || parts[1] == "authentication.k8s.io"):
		return r.Method == http.MethodPost && isReview(parts[3:])
	}
	return false
}

// changesDeployment reports whether a request patches a MachineDeployment of a namespace, and not
// its status. base is the path below which the server is reached.
func changesDeployment(r *http.Request, base, namespace string) bool {
	path, below := strings.CutPrefix(r.URL.Path, base+"/")
	parts := strings.Split(path, "/")
	const name, count = 6, 7
	if !below || r.Method != http.MethodPatch || len(parts) != count {
		return false
	}
	version := v1alpha1.SchemeGroupVersion
	return slices.Equal(parts[:name], []string{"apis", version.Group, version.Version, "namespaces", namespace, "machinedeployments"}) &&
		v1alpha1.MayExist(types.NamespacedName{Namespace: namespace, Name: parts[name]})
}

// isEvent reports whether the path after the version is namespaces/<namespace>/events, to create an
// Event, or an Event below it, to increase its count. No code here deletes Events.
func isEvent(method string, parts []string) bool {
	if len(parts) < 3 || parts[0] != "namespaces" || parts[2] != "events" {
		return false
	}
	return len(parts) == 3 && method == http.MethodPost ||
		len(parts) == 4 && (method == http.MethodPatch || method == http.MethodPut)
}

// isReview reports whether the path after the version is that of a review, with or without a
// namespace.
func isReview(parts []string) bool {
	if len(parts) == 3 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	return len(parts) == 1 && strings.HasSuffix(parts[0], "reviews")
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// countedBody counts a request as in flight until its answer is closed.
type countedBody struct {
	io.ReadCloser

	done func()
}

// Close ends the request.
func (b *countedBody) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}
