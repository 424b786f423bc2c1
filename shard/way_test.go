package shard

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/machine-controller-fleet/machine-controller-fleet/membership/leases"
	"github.com/machine-controller-fleet/machine-controller-fleet/membership/leases/leasetest"
)

// storeOn makes a Store of the Leases behind a Fence.
func storeOn(t *testing.T, way *rest.Config, fence *Fence, now *Time) *leases.Store {
	t.Helper()
	config, err := fence.Guard(way)
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
func cut(server *leasetest.Server, replica string) { server.Fault(unreachableFor(replica)) }

// unreachableFor is the fault that a replica's requests get no answer.
func unreachableFor(replica string) func(*http.Request) error {
	return func(r *http.Request) error {
		if strings.Contains(r.Header.Get("User-Agent"), "/"+replica+" ") {
			<-r.Context().Done()
			return r.Context().Err()
		}
		return nil
	}
}

// noLeader is the fault that nobody can become the leader or stay it.
func noLeader(r *http.Request) error {
	if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/fleet-leader") {
		return errors.New("refused")
	}
	return nil
}
