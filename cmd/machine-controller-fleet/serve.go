package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/klog/v2"
)

// server answers for metrics and health.
type server struct {
	http    *http.Server
	isReady atomic.Bool
}

// serve listens at once, so that liveness can be asked for while the caches fill. Errors: the address is taken.
func serve(ctx context.Context, o options, metrics prometheus.Gatherer) (*server, error) {
	s := &server{}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	alive := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "OK") }
	mux.HandleFunc("/healthz", alive)
	mux.HandleFunc("/livez", alive)
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !s.isReady.Load() {
			http.Error(w, "the caches are not complete yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "OK")
	})
	address := net.JoinHostPort(o.address, strconv.Itoa(o.port))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for metrics and health, see --address and --port: %w", err)
	}
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			klog.FromContext(ctx).Error(err, "Metrics and health are not served any more")
		}
	}()
	return s, nil
}

// ready says that the controllers run.
func (s *server) ready() { s.isReady.Store(true) }

func (s *server) close() { _ = s.http.Close() }
