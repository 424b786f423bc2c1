package leases

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// The requests of tenants use up the rate limit of the configuration and all streams of their
// connection; renewals are sent all the same, over connections that only they have.
func TestSessionSharesNoConnectionAndNoRateLimit(t *testing.T) {
	var mu sync.Mutex
	from := map[string]map[string]bool{} // addresses of clients, by resource
	waits, end := make(chan struct{}), make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resource := "pods"
		if strings.Contains(r.URL.Path, "/leases") {
			resource = "leases"
		}
		mu.Lock()
		if from[resource] == nil {
			from[resource] = map[string]bool{}
		}
		from[resource][r.RemoteAddr] = true
		mu.Unlock()
		if resource == "pods" {
			close(waits)
			<-end
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"l","uid":"u","resourceVersion":"1"}}`)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	config := &rest.Config{
		Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		RateLimiter: flowcontrol.NewFakeNeverRateLimiter(),
	}
	tenants := rest.CopyConfig(config)
	tenants.RateLimiter = nil
	client, err := kubernetes.NewForConfig(tenants)
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _, _ = client.CoreV1().Pods("n").List(t.Context(), metav1.ListOptions{}) })
	<-waits
	store := newStore(t, config)
	for range 3 {
		reply := store.Do(t.Context(), membership.Request{Verb: membership.Get, Name: "l"})
		if reply.Outcome != membership.Done {
			t.Errorf("got %v, want the Lease", reply.Outcome)
		}
	}
	close(end)
	running.Wait()
	store.client.CloseIdleConnections()
	mu.Lock()
	defer mu.Unlock()
	for address := range from["leases"] {
		if from["pods"][address] {
			t.Errorf("the session and tenants share the connection from %s", address)
		}
	}
	if len(from["leases"]) != 1 || len(from["pods"]) != 1 {
		t.Errorf("got connections %v, want one for each", from)
	}
}
