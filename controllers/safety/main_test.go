package safety

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	machineclientset "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// cluster is an API server in memory with clients.
type cluster struct {
	*apiserver.Server

	core     kubernetes.Interface
	machines machineclientset.Interface
	user     machineclientset.Interface // whose requests are not counted or intercepted
	metadata metadata.Interface
	requests atomic.Int32

	mu     sync.Mutex
	before func(r *http.Request) error // called before each request of the clients
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{Server: apiserver.New("cluster", time.Now)}
	config := &rest.Config{Host: "http://memory", Transport: c, QPS: -1}
	direct := &rest.Config{Host: "http://memory", Transport: c.Server, QPS: -1}
	var err1, err2, err3, err4 error
	c.core, err1 = kubernetes.NewForConfig(direct)
	c.user, err4 = machineclientset.NewForConfig(direct)
	c.machines, err2 = machineclientset.NewForConfig(config)
	c.metadata, err3 = metadata.NewForConfig(config)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	return c
}

// RoundTrip is the http.RoundTripper of the clients.
func (c *cluster) RoundTrip(r *http.Request) (*http.Response, error) {
	c.requests.Add(1)
	c.mu.Lock()
	before := c.before
	c.mu.Unlock()
	if before != nil {
		if err := before(r); err != nil {
			return nil, err
		}
	}
	return c.Server.RoundTrip(r)
}

func (c *cluster) intercept(before func(r *http.Request) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before = before
}

// leaderGate admits keys while the test's session leads.
type leaderGate struct{ leads atomic.Bool }

func (g *leaderGate) Admit(ctx context.Context, _ string) (context.Context, func(), bool) {
	return ctx, func() {}, g.leads.Load()
}
