package serving

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

// scrapesAtOnce bounds the scrapes in flight: each has all series in memory until its reader has
// received them.
const scrapesAtOnce = 8

// Options are the settings of serving.
type Options struct {
	// Address and Port are where it listens.
	Address string
	Port    int
	// TLSCertFile and TLSKeyFile are files with a certificate and its key. They are read again when
	// they change.
	TLSCertFile, TLSKeyFile string
	// TLSSelfSigned serves HTTPS with a certificate that the process creates for itself.
	TLSSelfSigned bool
	// MetricsAuthorization has the control cluster review who may read the guarded pages.
	MetricsAuthorization bool
	// Profiling serves profiles of the process, and ContentionProfiling those of waits for locks.
	Profiling, ContentionProfiling bool
}

// Server serves metrics, health and debugging.
type Server struct {
	http    *http.Server
	address net.Addr
}

// Health answers probes.
type Health struct {
	Live, Ready func(context.Context) zpages.Report
}

// Pages are those that only some clients may read.
type Pages struct {
	// Metrics is /metrics, and Debug everything below /debug/.
	Metrics, Debug http.Handler
	// Statusz and Flagz are /statusz and /flagz.
	Statusz, Flagz http.Handler
	// Page is everything below /page/, and has its own guard; nil without it.
	Page http.Handler
}

// Guarded returns the pages behind the guards of metrics and of all others.
func (p Pages) Guarded(metrics, others Guard) Pages {
	return Pages{Metrics: metrics(p.Metrics), Debug: others(p.Debug), Statusz: others(p.Statusz), Flagz: others(p.Flagz), Page: p.Page}
}

// NewMux returns the handler of all paths.
func NewMux(all Pages, is Health) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("/metrics", all.Metrics)
	mux.Handle("/debug/", all.Debug)
	mux.Handle("/statusz", all.Statusz)
	mux.Handle("/flagz", all.Flagz)
	if all.Page != nil {
		mux.Handle("/page/", all.Page)
	}
	zpages.RegisterHealth(mux, "/healthz", is.Live)
	zpages.RegisterHealth(mux, "/livez", is.Live)
	zpages.RegisterHealth(mux, "/readyz", is.Ready)
	return mux
}

// Paths are the paths that a replica serves; below /debug/ there are more.
func Paths() []string {
	return []string{"/debug/", "/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz"}
}

// Guard returns a handler that serves only those requests of another one that are allowed.
type Guard func(http.Handler) http.Handler

// Guards returns those of metrics and of the debug pages. Without authorization the debug pages are
// for clients in the same pod.
func Guards(o Options, reviews *Reviewer) (metrics, debug Guard) {
	if o.MetricsAuthorization {
		return reviews.guard, reviews.guard
	}
	return func(next http.Handler) http.Handler { return next }, onLoopback
}

// Serve listens at once, so that liveness probes are answered while the caches fill. Errors: the
// address is taken, or there is no valid certificate.
func Serve(ctx context.Context, o Options, all Pages, is Health) (*Server, error) {
	log := klog.FromContext(ctx)
	listener, err := listen(ctx, o)
	if err != nil {
		return nil, err
	}
	s := &Server{http: newHTTPServer(NewMux(all, is), log), address: listener.Addr()}
	go func() {
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error(err, "Stopped serving metrics and health")
		}
	}()
	return s, nil
}

// listen returns a bounded listener, with TLS if there is a certificate.
func listen(ctx context.Context, o Options) (net.Listener, error) {
	config, err := servingConfig(ctx, o)
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(o.Address, strconv.Itoa(o.Port)))
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
func servingConfig(ctx context.Context, o Options) (*tls.Config, error) {
	switch {
	case o.TLSCertFile != "":
		certificate, err := newServingCertificate(o.TLSCertFile, o.TLSKeyFile, clock.RealClock{}, klog.FromContext(ctx))
		if err != nil {
			return nil, fmt.Errorf("--tls-cert-file, --tls-private-key-file: expected a certificate with its chain, and its key, both PEM: %w", err)
		}
		return certificate.config(), nil
	case o.TLSSelfSigned:
		created, err := selfSigned(clock.RealClock{}.Now())
		if err != nil {
			return nil, fmt.Errorf("--tls-self-signed: create a certificate: %w", err)
		}
		return tlsConfig(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return created, nil }), nil
	}
	return nil, nil //nolint:nilnil // HTTP has none
}

// newHTTPServer creates a server that closes connections which a client does not use, and those of
// a client that is slow. Profiles extend the time for their answer.
func newHTTPServer(handler http.Handler, log klog.Logger) *http.Server {
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		// Most of what a server logs is caused by clients, which could fill the log.
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(log.V(4)), slog.LevelInfo),
	}
}

// ServeMetrics returns the handler of /metrics, in the format that the reader asks for. What cannot
// be collected is left out, counted and logged, and all else is served.
func ServeMetrics(metrics prometheus.Gatherer, registerer prometheus.Registerer, log klog.Logger) http.Handler {
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

// ServeDebug returns the handler of everything below /debug/.
func ServeDebug(o Options, pages map[string]http.Handler) http.Handler {
	mux := http.NewServeMux()
	for path, page := range pages {
		mux.Handle(path, page)
	}
	if o.Profiling {
		serveProfiles(mux)
	}
	if o.ContentionProfiling {
		runtime.SetBlockProfileRate(1)
	}
	return mux
}

// onLoopback returns a handler that serves only clients on a loopback address, such as kubectl
// port-forward. A request that was forwarded by a proxy in the same pod is refused: its sender is
// elsewhere.
func onLoopback(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		here, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		if here == nil || !isLoopback(here.String()) || !isLoopback(r.RemoteAddr) || r.Header.Get("Forwarded") != "" ||
			r.Header.Get("X-Forwarded-For") != "" {
			http.Error(w, "expected a connection to a loopback address, as kubectl port-forward opens it; "+
				"--metrics-authorization serves this page to others", http.StatusForbidden)
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

// serveProfiles serves the profiles of the process. The index also serves every profile by its
// name.
func serveProfiles(mux *http.ServeMux) {
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
}

// Close closes the listener and all connections.
func (s *Server) Close() { _ = s.http.Close() }
