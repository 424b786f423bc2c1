package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/klog/v2"
)

// answerTimeout is how long the loop of the session may take to say whether it is ready.
const answerTimeout = time.Second

// server answers for metrics, health and debugging.
type server struct{ http *http.Server }

// serve listens at once, so that liveness can be asked for while the caches fill. Errors: the address is taken.
func serve(ctx context.Context, o options, metrics prometheus.Gatherer, session *session) (*server, error) {
	s := &server{}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	alive := answer(func(context.Context) error { return session.alive() })
	mux.HandleFunc("/healthz", alive)
	mux.HandleFunc("/livez", alive)
	mux.HandleFunc("/readyz", answer(session.ready))
	for path, page := range session.handlers() {
		mux.Handle(path, page)
	}
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

// answer is OK, or what is wrong.
func answer(ask func(context.Context) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
		defer cancel()
		if err := ask(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "OK")
	}
}

func (s *server) close() { _ = s.http.Close() }
