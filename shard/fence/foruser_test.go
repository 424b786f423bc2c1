package fence

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// TestUsersChangeOnlyMachineDeploymentsOfTheirNamespace: also by a session without a slot, and
// after its fence has passed.
func TestUsersChangeOnlyMachineDeploymentsOfTheirNamespace(t *testing.T) {
	const deployments = "/apis/machine.sapcloud.io/v1alpha1/namespaces/n/machinedeployments"
	for _, tc := range []struct {
		method, path string
		want         bool
	}{
		{http.MethodPatch, deployments + "/pool", true},
		{http.MethodPatch, deployments + "/pool/status", false},
		{http.MethodPatch, deployments + "/pool/scale", false},
		{http.MethodPatch, deployments, false},
		{http.MethodPatch, deployments + "/", false},
		{http.MethodPatch, deployments + "/..", false},
		{http.MethodPut, deployments + "/pool", false},
		{http.MethodPost, deployments, false},
		{http.MethodDelete, deployments + "/pool", false},
		{http.MethodPatch, strings.Replace(deployments, "/n/", "/other/", 1) + "/pool", false},
		{http.MethodPatch, strings.Replace(deployments, "deployments", "sets", 1) + "/pool", false},
		{http.MethodPatch, strings.Replace(deployments, "v1alpha1", "v1", 1) + "/pool", false},
		{http.MethodPatch, "/other" + deployments + "/pool", false},
		{http.MethodPost, "/api/v1/namespaces/n/secrets", false},
	} {
		for _, base := range []string{"", "/clusters/a"} {
			s := newStand(t)
			s.Suspend()
			arrived := ""
			server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { arrived = r.UserAgent() }))
			config, err := s.Guard(&rest.Config{Host: server.URL + base, QPS: -1})
			if err != nil {
				t.Fatal(err)
			}
			client, err := rest.HTTPClientFor(config)
			if err != nil {
				t.Fatal(err)
			}
			ctx := ForUser(t.Context(), "n", "system:serviceaccount:n:autoscaler")
			got := send(ctx, t, client, tc.method, server.URL+base+tc.path)
			server.Close()
			if got != tc.want || got != strings.HasSuffix(arrived, "; user=system:serviceaccount:n:autoscaler)") {
				t.Errorf("%s %s%s: sent %t, User-Agent %q; want %t", tc.method, base, tc.path, got, arrived, tc.want)
			}
		}
	}
}

// send reports whether a request was sent; if it was not, the Fence has refused it.
func send(ctx context.Context, t *testing.T, client *http.Client, method, url string) bool {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(request)
	if err == nil {
		_ = answer.Body.Close()
		return true
	}
	if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Why != Unowned {
		t.Errorf("%s %s: %v", method, url, err)
	}
	return false
}

func TestUsersCallNoDriver(t *testing.T) {
	s, cloud := newStand(t), &fakecloud.Cloud{}
	_, err := s.Driver(cloud.Driver()).DeleteMachine(ForUser(t.Context(), "n", "u"), driver.DeleteMachineRequest{})
	wantRefused(t, "DeleteMachine", err, Unowned)
	request := httptest.NewRequestWithContext(ForUser(t.Context(), "n", "u"), http.MethodPatch,
		"http://cloud/apis/machine.sapcloud.io/v1alpha1/namespaces/n/machinedeployments/pool", http.NoBody)
	_, err = s.Transport(fails{}).RoundTrip(request) //nolint:bodyclose // there is no answer
	wantRefused(t, "a request of a driver", err, Unowned)
}
