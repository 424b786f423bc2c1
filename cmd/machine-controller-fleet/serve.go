package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/klog/v2"
)

// answerTimeout is how long the loop of the session may take to report whether it is ready.
const answerTimeout = time.Second

// server serves metrics, health and debugging.
type server struct{ http *http.Server }

// serve listens at once, so that liveness probes are answered while the caches fill. guard protects all but health.
// Errors: the address is taken.
func serve(ctx context.Context, o options, metrics prometheus.Gatherer, session *session, guard func(http.Handler) http.Handler) (*server, error) {
	s := &server{}
	mux, guarded := http.NewServeMux(), http.NewServeMux()
	guarded.Handle("/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.Handle("/metrics", guard(guarded))
	mux.Handle("/debug/", guard(guarded))
	alive := answer(func(context.Context) error { return session.alive() })
	mux.HandleFunc("/healthz", alive)
	mux.HandleFunc("/livez", alive)
	mux.HandleFunc("/readyz", answer(session.ready))
	for path, page := range session.handlers() {
		guarded.Handle(path, page)
	}
	if o.profiling || o.fleet.debugHooks {
		serveProfiles(guarded)
	}
	if o.contentionProfiling {
		runtime.SetBlockProfileRate(1)
	}
	address := net.JoinHostPort(o.address, strconv.Itoa(o.port))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for metrics and health, see --address and --port: %w", err)
	}
	s.http = newHTTPServer(mux)
	go func() {
		if err := s.http.Serve(boundConnections(listener)); !errors.Is(err, http.ErrServerClosed) {
			klog.FromContext(ctx).Error(err, "Stopped serving metrics and health")
		}
	}()
	return s, nil
}

// newHTTPServer makes a server that closes connections which a client does not use. An answer may take as long as a profile.
func newHTTPServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: 2 * time.Minute, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
}

// serveProfiles serves the profiles of the process. The index also serves every profile by its name.
func serveProfiles(mux *http.ServeMux) {
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
}

// answer writes OK, or the error.
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
