// Command aws-driver serves the driver of Amazon EC2 in a separate process, as a fleet with
// --driver-socket uses it.
//
//	aws-driver --socket=/run/drivers/aws.sock --metrics-address=:8081
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver/aws"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/plugin"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// options are the flags.
type options struct{ socket, endpoints, stsEndpoint, tokenDirs, metricsAddress string }

func main() {
	var o options
	flag.StringVar(&o.socket, "socket", "", "absolute `path` of the unix socket to listen on")
	flag.StringVar(&o.endpoints, "endpoints", "", "`URLs` of EC2 that requests may go to, split at commas; the default are those of AWS")
	flag.StringVar(&o.stsEndpoint, "sts-endpoint", "", "`URL` of STS; the default is that of AWS in the region of the class")
	flag.StringVar(&o.tokenDirs, "token-dirs", "",
		"absolute `paths`, split at commas, of folders whose files Secrets may name as tokens of workload identities")
	flag.StringVar(&o.metricsAddress, "metrics-address", "",
		"`address` that serves the metrics of requests to the cloud at /metrics; none by default")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // the first context
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "aws-driver:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, o options) error {
	registry := prometheus.NewRegistry()
	metrics := telemetry.NewRequestMetrics(registry, clock.RealClock{})
	cloud, err := aws.New(aws.Config{
		Endpoints: words(o.endpoints), STSEndpoint: o.stsEndpoint, TokenDirs: words(o.tokenDirs), UserAgent: "machine-controller-fleet",
		Wrap: func(next http.RoundTripper) http.RoundTripper {
			return metrics.Transport(aws.Provider, aws.Service, next)
		},
	})
	if err != nil {
		return err
	}
	if o.metricsAddress != "" {
		_, end, err := serveMetrics(ctx, o.metricsAddress, registry)
		if err != nil {
			return fmt.Errorf("--metrics-address: %w", err)
		}
		defer end()
	}
	return plugin.Serve(ctx, o.socket, plugin.Served{Driver: cloud, Provider: aws.Provider})
}

// serveMetrics serves metrics at an address until end is called. at is the address with its port.
func serveMetrics(ctx context.Context, address string, registry prometheus.Gatherer) (at net.Addr, end func(), err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, nil, err
	}
	routes := http.NewServeMux()
	routes.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	const timeout = 10 * time.Second
	server := &http.Server{Handler: routes, ReadHeaderTimeout: timeout, WriteTimeout: timeout, IdleTimeout: timeout}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintln(os.Stderr, "aws-driver: the metrics are not served any more:", err)
		}
	}()
	return listener.Addr(), func() { _ = server.Close() }, nil
}

// words splits a flag at commas.
func words(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
}
