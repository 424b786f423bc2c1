// Command simulated-driver serves the driver of the simulated cloud in a separate process, as a
// fleet with --driver-socket uses it.
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

	"github.com/machine-controller-fleet/machine-controller-fleet/driver/plugin"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// options are the flags.
type options struct{ socket, provider, endpoints, metrics string }

func main() {
	var o options
	flag.StringVar(&o.socket, "socket", "", "absolute `path` of the unix socket to listen on")
	flag.StringVar(&o.provider, "provider", simulated.Provider, "`value` of MachineClass.provider")
	flag.StringVar(&o.endpoints, "endpoints", "",
		"`URLs` of all clouds that requests and credentials may go to, split at commas; the first is for classes whose Secret names none")
	flag.StringVar(&o.metrics, "metrics-address", "", "`address` on which /metrics is served (default: not served)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "simulated-driver:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, o options) error {
	registry := prometheus.NewRegistry()
	requests := telemetry.NewRequestMetrics(registry, clock.RealClock{})
	cloud, err := simulated.New(simulated.Config{
		Endpoints: strings.Split(o.endpoints, ","),
		Wrap: func(next http.RoundTripper) http.RoundTripper {
			return owned{requests.Transport(o.provider, simulated.Service, next)}
		},
	})
	if err != nil {
		return err
	}
	stop, err := serveMetrics(ctx, o.metrics, registry)
	if err != nil {
		return err
	}
	return errors.Join(plugin.Serve(ctx, o.socket, plugin.Served{Driver: cloud, Provider: o.provider}), stop())
}

// owned has requests name the replica for which they are sent, and its ownership, as the requests
// of a replica to API servers do: the log of the cloud shows who has called it.
type owned struct{ next http.RoundTripper }

// RoundTrip is http.RoundTripper's.
func (t owned) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := r.Clone(r.Context())
	sent.Header.Set("User-Agent", userAgent(r.Context()))
	return t.next.RoundTrip(sent)
}

// userAgent returns that of a call of the fleet. Calls without an ownership only read.
func userAgent(ctx context.Context) string {
	o, ok := plugin.OwnershipFrom(ctx)
	switch {
	case !ok:
		return fmt.Sprintf("simulated-driver/%d", os.Getpid())
	case o.Leader:
		return fmt.Sprintf("machine-controller-fleet/%s (session=%s; leader)", o.Replica, o.Session)
	}
	return fmt.Sprintf("machine-controller-fleet/%s (session=%s; slot=%d; epoch=%d)", o.Replica, o.Session, o.Slot, o.Epoch)
}

// serveMetrics serves /metrics on an address until stop is called; "" serves none.
func serveMetrics(ctx context.Context, address string, registry *prometheus.Registry) (stop func() error, err error) {
	if address == "" {
		return func() error { return nil }, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for --metrics-address: %w", err)
	}
	routes := http.NewServeMux()
	routes.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	server := &http.Server{Handler: routes, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	return func() error {
		err := server.Close()
		if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return err
	}, nil
}
