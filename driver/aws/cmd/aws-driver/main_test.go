package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/aws"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/aws/ec2test"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/plugin"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// The process serves the driver on its socket, for the endpoints of its flags.
func TestServes(t *testing.T) {
	cloud := httptest.NewServer(ec2test.New(ec2test.Settings{
		Region: "eu-west-1", AccessKeys: map[string]string{"AKIAIOSFODNN7EXAMPLE": "secret"},
	}))
	defer cloud.Close()
	folder, err := os.MkdirTemp("", "mcf") //nolint:usetesting // the name of t.TempDir() is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.RemoveAll(folder); err != nil {
			t.Error(err)
		}
	}()
	socket := filepath.Join(folder, "aws.sock")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, options{socket: socket, endpoints: cloud.URL, metricsAddress: "127.0.0.1:0"})
	}()
	client, err := plugin.Dial(ctx, plugin.Settings{Provider: aws.Provider, Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	bounded, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := client.Ready(bounded); err != nil {
		t.Fatal(err)
	}
	_, err = client.GetMachineStatus(bounded, driver.GetMachineStatusRequest{Target: driver.Target{
		Machine: &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid"}},
		Class:   &v1alpha1.MachineClass{Provider: aws.Provider, NodeTemplate: &v1alpha1.NodeTemplate{Region: "eu-west-1"}},
		Secret: map[string][]byte{
			aws.SecretAccessKeyIDAlternative: []byte("AKIAIOSFODNN7EXAMPLE"), aws.SecretSecretAccessKeyAlternate: []byte("secret"),
		},
	}})
	if driver.CodeOf(err) != driver.NotFound {
		t.Errorf("%v, want NotFound", err)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestFlagsThatAreWrong(t *testing.T) {
	for name, o := range map[string]options{
		"an endpoint that is none": {socket: "/run/aws.sock", endpoints: "ec2"},
		"no socket":                {},
		"an address that is none":  {socket: "/run/aws.sock", metricsAddress: "here"},
	} {
		if err := run(t.Context(), o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestMetricsOfRequests(t *testing.T) {
	registry := prometheus.NewRegistry()
	metrics := telemetry.NewRequestMetrics(registry, clock.RealClock{})
	at, end, err := serveMetrics(t.Context(), "127.0.0.1:0", registry)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	get := func(transport http.RoundTripper) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at.String()+"/metrics", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	get(metrics.Transport(aws.Provider, aws.Service, http.DefaultTransport))
	const want = `mcm_cloud_api_requests_total{provider="AWS",service="other"} 1`
	if text := get(http.DefaultTransport); !strings.Contains(text, want) {
		t.Errorf("the metrics lack %s:\n%s", want, text)
	}
}
