package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"runtime"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/zpages"
)

// statusTimeout is how long the loop of the session may take to answer /statusz.
const statusTimeout = time.Second

// scrapesAtOnce bounds the scrapes in flight: each has all series in memory until its reader has received them.
const scrapesAtOnce = 8

// server serves metrics, health and debugging.
type server struct {
	http    *http.Server
	address net.Addr
}

// health answers probes.
type health struct {
	live, ready func(context.Context) zpages.Report
}

// pages are those that only some clients may read.
type pages struct {
	// metrics is /metrics, and debug everything below /debug/.
	metrics, debug http.Handler
	// statusz and flagz are /statusz and /flagz.
	statusz, flagz http.Handler
}

// guarded returns the pages behind the guards of metrics and of all others.
func (p pages) guarded(metrics, others guard) pages {
	return pages{metrics: metrics(p.metrics), debug: others(p.debug), statusz: others(p.statusz), flagz: others(p.flagz)}
}

// newMux returns the handler of all paths.
func newMux(all pages, is health) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("/metrics", all.metrics)
	mux.Handle("/debug/", all.debug)
	mux.Handle("/statusz", all.statusz)
	mux.Handle("/flagz", all.flagz)
	zpages.RegisterHealth(mux, "/healthz", is.live)
	zpages.RegisterHealth(mux, "/livez", is.live)
	zpages.RegisterHealth(mux, "/readyz", is.ready)
	return mux
}

// paths are the paths that a replica serves; below /debug/ there are more.
func paths() []string {
	return []string{"/debug/", "/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz"}
}

// guard returns a handler that serves only those requests of another one that are allowed.
type guard func(http.Handler) http.Handler

// guards returns those of metrics and of the debug pages. Without authorization the debug pages are for clients in the same pod.
func guards(o options, reviews *reviewer) (metrics, debug guard) {
	if o.metricsAuthorization {
		return reviews.guard, reviews.guard
	}
	return func(next http.Handler) http.Handler { return next }, onLoopback
}

// serve listens at once, so that liveness probes are answered while the caches fill. Errors: the address is taken, or there is no valid
// certificate.
func serve(ctx context.Context, o options, all pages, is health) (*server, error) {
	log := klog.FromContext(ctx)
	listener, err := listen(ctx, o)
	if err != nil {
		return nil, err
	}
	s := &server{http: newHTTPServer(newMux(all, is), log), address: listener.Addr()}
	go func() {
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error(err, "Stopped serving metrics and health")
		}
	}()
	return s, nil
}

// listen returns a bounded listener, with TLS if there is a certificate.
func listen(ctx context.Context, o options) (net.Listener, error) {
	config, err := servingConfig(ctx, o)
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(o.address, strconv.Itoa(o.port)))
	if err != nil {
		return nil, fmt.Errorf("listen for metrics and health, see --address and --port: %w", err)
	}
	listener = boundConnections(listener)
	if config != nil {
		listener = tls.NewListener(listener, config)
	}
	return listener, nil
}

// servingConfig returns the settings of TLS; nil for HTTP. Errors: there is no valid certificate.
func servingConfig(ctx context.Context, o options) (*tls.Config, error) {
	switch {
	case o.tlsCertFile != "":
		certificate, err := newServingCertificate(o.tlsCertFile, o.tlsKeyFile, clock.RealClock{}, klog.FromContext(ctx))
		if err != nil {
			return nil, fmt.Errorf("--tls-cert-file, --tls-private-key-file: expected a certificate with its chain, and its key, both PEM: %w", err)
		}
		return certificate.config(), nil
	case o.tlsSelfSigned:
		made, err := selfSigned(time.Now())
		if err != nil {
			return nil, fmt.Errorf("--tls-self-signed: make a certificate: %w", err)
		}
		return tlsConfig(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return made, nil }), nil
	}
	return nil, nil //nolint:nilnil // HTTP has none
}

// newHTTPServer makes a server that closes connections which a client does not use, and those of a client that is slow. Profiles
// extend the time for their answer.
func newHTTPServer(handler http.Handler, log klog.Logger) *http.Server {
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		// Most of what a server logs is caused by clients, which could fill the log.
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(log.V(4)), slog.LevelInfo),
	}
}

// serveMetrics returns the handler of /metrics, in the format that the reader asks for. What cannot be collected is left out, counted
// and logged, and all else is served.
func serveMetrics(metrics prometheus.Gatherer, registerer prometheus.Registerer, log klog.Logger) http.Handler {
	return promhttp.HandlerFor(metrics, promhttp.HandlerOpts{
		MaxRequestsInFlight: scrapesAtOnce, EnableOpenMetrics: true,
		ErrorHandling: promhttp.ContinueOnError, Registry: registerer, ErrorLog: scrapeErrors{log},
	})
}

// scrapeErrors logs the errors of scrapes.
type scrapeErrors struct{ log klog.Logger }

// Println is promhttp.Logger's.
func (s scrapeErrors) Println(v ...any) {
	s.log.Error(errors.New(fmt.Sprint(v...)), "Failed to collect metrics")
}

// serveDebug returns the handler of everything below /debug/.
func serveDebug(o options, pages map[string]http.Handler) http.Handler {
	mux := http.NewServeMux()
	for path, page := range pages {
		mux.Handle(path, page)
	}
	if o.profiling || o.fleet.debugHooks {
		serveProfiles(mux)
	}
	if o.contentionProfiling {
		runtime.SetBlockProfileRate(1)
	}
	return mux
}

// onLoopback returns a handler that serves only clients on a loopback address, such as kubectl port-forward. A request that was
// forwarded by a proxy in the same pod is refused: its sender is elsewhere.
func onLoopback(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		here, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		if here == nil || !isLoopback(here.String()) || !isLoopback(r.RemoteAddr) || r.Header.Get("Forwarded") != "" || r.Header.Get("X-Forwarded-For") != "" {
			http.Error(w, "expected a connection to a loopback address, as kubectl port-forward makes it; --metrics-authorization serves this page to others", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLoopback reports whether an address with a port is one of the loopback interface.
func isLoopback(address string) bool {
	parsed, err := netip.ParseAddrPort(address)
	return err == nil && parsed.Addr().Unmap().IsLoopback()
}

// serveProfiles serves the profiles of the process. The index also serves every profile by its name.
func serveProfiles(mux *http.ServeMux) {
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
}

func (s *server) close() { _ = s.http.Close() }
