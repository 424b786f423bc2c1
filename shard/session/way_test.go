package session

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/membership/leases"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/fence"
)

// server is an API server, whose Leases are all in one namespace.
type server struct{ *apiserver.Server }

func newServer() *server { return &server{apiserver.New("s", time.Now)} }

// Leases returns all Leases, by name.
func (s *server) Leases() map[string]*coordinationv1.Lease {
	found := map[string]*coordinationv1.Lease{}
	for _, l := range apiserver.ReadAll[coordinationv1.Lease](s.Server, "leases") {
		found[l.Name] = l
	}
	return found
}

// Edit changes a Lease as a user would, and reports whether it exists.
func (s *server) Edit(name string, edit func(*coordinationv1.Lease)) bool {
	return apiserver.Change(s.Server, "leases", "fleet-system", name, edit)
}

// Delete removes a Lease as a user would.
func (s *server) Delete(name string) { s.Remove("leases", "fleet-system", name) }

// storeOn creates a Store of the Leases behind a Fence.
func storeOn(t *testing.T, way *rest.Config, f *fence.Fence, now *fence.Time) *leases.Store {
	t.Helper()
	config, err := f.Guard(way)
	if err != nil {
		t.Fatal(err)
	}
	store, err := leases.NewStore(leases.Config{
		Client: config, Namespace: "fleet-system", Fleet: "fleet", Timeout: 2 * time.Second, Quiet: 6 * time.Second,
		Clock: now, Now: now.Moment,
	})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// cut keeps a replica's requests from the server.
func cut(server *server, replica string) { server.Fault(unreachableFor(replica)) }

// unreachableFor is the fault that a replica's requests get no answer.
func unreachableFor(replica string) func(apiserver.Request) error {
	return func(r apiserver.Request) error {
		if strings.Contains(r.Header.Get("User-Agent"), "/"+replica+" ") {
			<-r.Context().Done()
			return r.Context().Err()
		}
		return nil
	}
}

// noLeader is the fault that no replica can become the leader or stay it.
func noLeader(r apiserver.Request) error {
	if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/fleet-leader") {
		return errors.New("refused")
	}
	return nil
}

// maySend returns why the Fence refuses a request about a Lease; "" if it does not.
func (p *process) maySend(t *testing.T, need member.Need) fence.Refusal {
	t.Helper()
	_, why := p.send(fence.WithNeed(t.Context(), need), t)
	return why
}

// send sends a request through the Fence, and returns the User-Agent that it arrived with, or why
// it was refused.
func (p *process) send(ctx context.Context, t *testing.T) (agent string, why fence.Refusal) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://api/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := p.fence.Transport(roundTrip(func(r *http.Request) (*http.Response, error) {
		agent = r.Header.Get("User-Agent")
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
	})).RoundTrip(request)
	if refused, ok := errors.AsType[*fence.RefusedError](err); ok {
		return "", refused.Why
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	return agent, ""
}
