package orphans

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/apianswers"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
)

// noRoute is a proxy that answers in the place of an API server.
type noRoute struct{}

// RoundTrip is http.RoundTripper's.
func (noRoute) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusNotFound, Header: http.Header{"Content-Type": {"text/html"}}, Body: io.NopCloser(strings.NewReader("<html>")),
		Request: r,
	}, nil
}

// While a proxy answers for the target cluster with 404, no Node of an orphan counts as absent: its
// VM is not deleted without an approval.
func TestSweepProxyAnswersForTheTargetDeletesNoVM(t *testing.T) {
	s := newSweeping(t, 10)
	client, err := kubernetes.NewForConfig(apianswers.Check(&rest.Config{Host: "http://target", Transport: noRoute{}, QPS: -1}))
	if err != nil {
		t.Fatal(err)
	}
	s.config.Targets = target.Single{Cluster: target.New(client)}
	s.lead()
	s.add(driver.ResourceVM, namespace, "vm")
	s.sweep(namespace)
	s.clock.Step(timeBetween)
	if _, err := s.orphans.reconcile(t.Context(), namespace); err == nil {
		t.Error("the sweep succeeds without the Node")
	}
	s.wantDeleted()
}
