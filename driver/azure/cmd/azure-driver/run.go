package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver/azure"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/httpclient"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/plugin"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// share returns the part of a subscription's limits for a call: that which the replica has sent or,
// if it is of a version that sends none, the same for all replicas.
func (o options) share(ctx context.Context) float64 {
	if share, ok := plugin.ShareFrom(ctx); ok {
		return share
	}
	return 1 / float64(o.replicas)
}

// run serves until ctx ends.
func run(ctx context.Context, o options) error {
	registry := prometheus.NewRegistry()
	requests := telemetry.NewRequestMetrics(registry, clock.RealClock{})
	host, err := os.Hostname() // the name of the pod
	if err != nil {
		return err
	}
	traces, flush, err := telemetry.NewTracerProvider(ctx, telemetry.Process{Replica: host})
	if err != nil {
		return err
	}
	cfg := azure.Config{
		TokenDirectory: o.tokens, UserAgent: "machine-fleet", Tracer: traces.Tracer("azure-driver"),
		Share: o.share,
		Wrap: func(next http.RoundTripper) http.RoundTripper {
			return requests.Transport(azure.MetricsProvider, azure.Service, next)
		},
	}
	if err := o.standIn(&cfg); err != nil {
		return err
	}
	d, err := azure.New(cfg)
	if err != nil {
		return err
	}
	stop, err := serveMetrics(ctx, o.metrics, registry)
	if err != nil {
		return err
	}
	served := plugin.Serve(ctx, o.socket, plugin.Served{Driver: d, Provider: azure.Provider})
	const timeout = 5 * time.Second
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	return errors.Join(served, stop(end), flush(end))
}

// standIn has a server stand in for AzurePublic, if the flags name one.
func (o options) standIn(cfg *azure.Config) error {
	if o.endpoint == "" {
		return nil
	}
	cfg.Clouds = map[string]cloud.Configuration{"AzurePublic": {
		ActiveDirectoryAuthorityHost: o.endpoint + "/",
		Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
			cloud.ResourceManager: {Endpoint: o.endpoint, Audience: cloud.AzurePublic.Services[cloud.ResourceManager].Audience},
		},
	}}
	if o.certificates == "" {
		return nil
	}
	pem, err := os.ReadFile(o.certificates)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s has no certificate; expected PEM", o.certificates)
	}
	transport := httpclient.Transport()
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	cfg.Transport = transport
	return nil
}

// serveMetrics serves /metrics on an address; "" serves none. stop ends that.
func serveMetrics(ctx context.Context, address string, registry *prometheus.Registry) (stop func(context.Context) error, err error) {
	if address == "" {
		return func(context.Context) error { return nil }, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	routes := http.NewServeMux()
	routes.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	const headerTime = 5 * time.Second
	server := &http.Server{Handler: routes, ReadHeaderTimeout: headerTime}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	return func(ctx context.Context) error {
		err := server.Shutdown(ctx)
		if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return err
	}, nil
}
