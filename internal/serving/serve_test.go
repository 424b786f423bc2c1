package serving

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/zpages"
)

const servedName = "fleet.example.org"

// certificateFiles are those of a certificate, as in a mounted Secret.
type certificateFiles struct{ cert, key string }

// write writes a new self-signed certificate to files, and returns the pool that verifies it.
func (f certificateFiles) write(t *testing.T) *x509.CertPool {
	t.Helper()
	cert, key, err := certutil.GenerateSelfSignedCertKey(servedName, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, f.cert, cert)
	writeFile(t, f.key, key)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	return pool
}

func writeFile(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func newCertificateFiles(t *testing.T) (certificateFiles, *x509.CertPool) {
	t.Helper()
	folder := t.TempDir()
	f := certificateFiles{cert: filepath.Join(folder, "tls.crt"), key: filepath.Join(folder, "tls.key")}
	return f, f.write(t)
}

// start serves as a replica does, on a free port of the loopback interface.
func start(t *testing.T, o Options) (address string) {
	t.Helper()
	o.Address, o.Port = "127.0.0.1", 0
	page := http.HandlerFunc(ok)
	s, err := Serve(t.Context(), o, Pages{Metrics: page, Debug: page, Statusz: page, Flagz: page}, Health{
		Live: func(context.Context) zpages.Report { return zpages.Report{} },
		Ready: func(context.Context) zpages.Report {
			return zpages.Report{Checks: []zpages.Check{{Name: "x", Err: errors.New("not yet")}}}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s.address.String()
}

// fetch gets a path, and returns the status and the version of HTTP.
func fetch(t *testing.T, client *http.Client, url string) (status int, version string, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	_ = resp.Body.Close()
	return resp.StatusCode, resp.Proto, nil
}

func httpsClient(config *tls.Config) *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableKeepAlives: true}}
}

func TestHealthIsServedOverHTTP(t *testing.T) {
	address := start(t, Options{})
	for path, want := range map[string]int{
		"/livez": 200, "/healthz": 200, "/readyz": 503, "/readyz/x": 503, "/metrics": 200, "/debug/slots": 200, "/statusz": 200, "/flagz": 200,
		"/": 404,
	} {
		if status, _, err := fetch(t, http.DefaultClient, "http://"+address+path); status != want {
			t.Errorf("%s: status %d, want %d; %v", path, status, want, err)
		}
	}
}

func TestHealthIsServedOverHTTPS(t *testing.T) {
	files, pool := newCertificateFiles(t)
	address := start(t, Options{TLSCertFile: files.cert, TLSKeyFile: files.key})
	for name, tc := range map[string]struct {
		client *http.Client
		scheme string
		status int
	}{
		"verifying":            {httpsClient(&tls.Config{RootCAs: pool, ServerName: servedName}), "https", 200},
		"a probe":              {httpsClient(&tls.Config{InsecureSkipVerify: true}), "https", 200},
		"other name":           {httpsClient(&tls.Config{RootCAs: pool, ServerName: "other.example.org"}), "https", 0},
		"TLS 1.2":              {httpsClient(&tls.Config{RootCAs: pool, ServerName: servedName, MaxVersion: tls.VersionTLS12}), "https", 0},
		"HTTP to a TLS server": {http.DefaultClient, "http", 400},
	} {
		t.Run(name, func(t *testing.T) {
			status, version, err := fetch(t, tc.client, tc.scheme+"://"+address+"/livez")
			if status != tc.status || status == http.StatusOK && version != "HTTP/1.1" {
				t.Errorf("status %d with %s, want %d with HTTP/1.1; %v", status, version, tc.status, err)
			}
		})
	}
}

// A client cannot verify the certificate, and sends its token to whom it has connected to, but not
// in clear text.
func TestSelfSigned(t *testing.T) {
	address := start(t, Options{TLSSelfSigned: true})
	for name, tc := range map[string]struct {
		client *http.Client
		scheme string
		status int
	}{
		"a probe":   {httpsClient(&tls.Config{InsecureSkipVerify: true}), "https", 200},
		"verifying": {httpsClient(&tls.Config{ServerName: servedName}), "https", 0},
		"HTTP":      {http.DefaultClient, "http", 400},
	} {
		if status, _, err := fetch(t, tc.client, tc.scheme+"://"+address+"/livez"); status != tc.status {
			t.Errorf("%s: status %d, want %d; %v", name, status, tc.status, err)
		}
	}
}

func TestWrongCertificatesAreNamed(t *testing.T) {
	files, _ := newCertificateFiles(t)
	other, _ := newCertificateFiles(t)
	for name, o := range map[string]Options{
		"no file":   {TLSCertFile: filepath.Join(t.TempDir(), "none"), TLSKeyFile: files.key},
		"other key": {TLSCertFile: files.cert, TLSKeyFile: other.key},
	} {
		if _, err := listen(t.Context(), o); err == nil || !strings.Contains(err.Error(), "--tls-cert-file") {
			t.Errorf("%s: want an error that names the flag, got %v", name, err)
		}
	}
}

// The files change as in the renewal of a mounted Secret, with a moment at which they do not belong
// together.
func TestARenewedCertificateIsServed(t *testing.T) {
	files, before := newCertificateFiles(t)
	clock := clocktesting.NewFakePassiveClock(time.Now())
	log := logLines{level: 2}
	certificate, err := newServingCertificate(files.cert, files.key, clock, log.logger())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(ok))
	server.Listener = tls.NewListener(boundConnections(server.Listener), certificate.config())
	server.Start()
	defer server.Close()
	url := "https://" + server.Listener.Addr().String()
	expect := func(when string, pool *x509.CertPool, valid bool) {
		t.Helper()
		status, _, err := fetch(t, httpsClient(&tls.Config{RootCAs: pool, ServerName: servedName}), url)
		if (status == http.StatusOK) != valid {
			t.Errorf("%s: valid %t, want %t; %v", when, status == http.StatusOK, valid, err)
		}
	}
	expect("at first", before, true)

	oldKey, err := os.ReadFile(files.key)
	if err != nil {
		t.Fatal(err)
	}
	after := files.write(t)
	newKey, err := os.ReadFile(files.key)
	if err != nil {
		t.Fatal(err)
	}
	expect("before the files are read again", before, true)
	writeFile(t, files.key, oldKey)
	for range 3 {
		clock.SetTime(clock.Now().Add(certificateFresh))
		expect("with the key of the previous one", before, true)
	}
	writeFile(t, files.key, newKey)
	expect("before the files are read again", after, false)
	clock.SetTime(clock.Now().Add(certificateFresh))
	expect("when it was renewed", after, true)
	expect("when it was renewed", before, false)
	if err := os.Remove(files.cert); err != nil {
		t.Fatal(err)
	}
	clock.SetTime(clock.Now().Add(certificateFresh))
	expect("without the file", after, true)
	log.expect(t, "Failed to read the serving certificate", "Read the serving certificate", "Failed to read the serving certificate")
}

// A client connects and does not begin its handshake.
func TestHandshakesThatDoNotBeginEnd(t *testing.T) {
	files, _ := newCertificateFiles(t)
	synctest.Test(t, func(t *testing.T) {
		certificate, err := newServingCertificate(files.cert, files.key, clocktesting.NewFakePassiveClock(time.Now()), klog.Background())
		if err != nil {
			t.Fatal(err)
		}
		p := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		server := newHTTPServer(http.HandlerFunc(ok), klog.Background())
		go func() { _ = server.Serve(tls.NewListener(boundConnections(p), certificate.config())) }()
		start := time.Now()
		if _, err := p.dial("10.0.0.1:1").Read(make([]byte, 1)); err == nil || time.Since(start) != server.ReadHeaderTimeout {
			t.Errorf("the connection was closed after %s with %v, want %s", time.Since(start), err, server.ReadHeaderTimeout)
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestDebugPagesNeedAuthorizationOrLoopback(t *testing.T) {
	for _, tc := range []struct {
		here, from, header string
		metrics, debug     int
	}{
		{here: "10.0.0.5:10258", from: "10.0.0.9:4711", metrics: 200, debug: 403},
		{here: "10.0.0.5:10258", from: "10.0.0.5:4711", metrics: 200, debug: 403},
		{here: "127.0.0.1:10258", from: "10.0.0.9:4711", metrics: 200, debug: 403},
		{here: "10.0.0.5:10258", from: "127.0.0.1:4711", metrics: 200, debug: 403},
		{here: "127.0.0.1:10258", from: "127.0.0.1:4711", metrics: 200, debug: 200},
		{here: "[::1]:10258", from: "[::1]:4711", metrics: 200, debug: 200},
		{here: "[::ffff:127.0.0.1]:10258", from: "[::ffff:127.0.0.1]:4711", metrics: 200, debug: 200},
		{here: "127.0.0.1:10258", from: "127.0.0.1:4711", header: "X-Forwarded-For", metrics: 200, debug: 403},
		{here: "127.0.0.1:10258", from: "127.0.0.1:4711", header: "Forwarded", metrics: 200, debug: 403},
		{here: "127.0.0.1:10258", from: "", metrics: 200, debug: 403},
		{from: "127.0.0.1:4711", metrics: 200, debug: 403},
	} {
		get := func(o Options, handler func(metrics, debug Guard) http.Handler) int {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			if tc.here != "" {
				r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(address(tc.here))))
			}
			r.RemoteAddr = tc.from
			if tc.header != "" {
				r.Header.Set(tc.header, "10.0.0.9")
			}
			w := httptest.NewRecorder()
			handler(Guards(o, newReviews(t).Reviewer)).ServeHTTP(w, r)
			return w.Code
		}
		metricsOf := func(metrics, _ Guard) http.Handler { return metrics(http.HandlerFunc(ok)) }
		debugOf := func(_, debug Guard) http.Handler { return debug(http.HandlerFunc(ok)) }
		if metrics, debug := get(Options{}, metricsOf), get(Options{}, debugOf); metrics != tc.metrics || debug != tc.debug {
			t.Errorf("%+v: /metrics %d, /debug %d", tc, metrics, debug)
		}
		reviewed := Options{MetricsAuthorization: true}
		if metrics, debug := get(reviewed, metricsOf), get(reviewed, debugOf); metrics != 401 || debug != 401 {
			t.Errorf("%+v with authorization and without a token: /metrics %d, /debug %d, want 401", tc, metrics, debug)
		}
	}
}

func TestProfilesAreServedWhereSwitchedOn(t *testing.T) {
	for _, on := range []bool{true, false} {
		w := httptest.NewRecorder()
		ServeDebug(Options{Profiling: on}, nil).ServeHTTP(w,
			httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/pprof/cmdline", nil))
		if served := w.Code == http.StatusOK; served != on {
			t.Errorf("profiling %t: status %d", on, w.Code)
		}
	}
}

// Of all paths, methods and tokens one combination leads to a page: the one that the reader may
// use.
func TestPathsMethodsAndTokens(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "content") })
	healthy := func(context.Context) zpages.Report { return zpages.Report{} }
	r := newReviews(t)
	metrics, others := Guards(Options{MetricsAuthorization: true}, r.Reviewer)
	debug := ServeDebug(Options{Profiling: true}, map[string]http.Handler{"/debug/slots": page})
	mux := NewMux(Pages{Metrics: page, Debug: debug, Statusz: page, Flagz: page}.Guarded(metrics, others),
		Health{Live: healthy, Ready: healthy})
	var served []string
	for _, path := range append(Paths(), "/", "/debug/slots", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/heap",
		"/metrics/", "//metrics", "/metrics%2F",
		"/METRICS", "/metrics/../debug/slots", "/debug/../metrics", "/debug/x%2F..%2Fslots", "/livez/../metrics", "/livez/%2e%2e/metrics",
		"/statusz?/metrics", "/metrics;/debug") {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"} {
			for _, authorization := range []string{
				"", "Bearer unknown", "Bearer unauthorized", "Bearer reader", "Basic reader", "reader", "Bearer reader,reader", "Bearer \x00reader",
			} {
				r.clock.SetTime(r.clock.Now().Add(time.Second)) // so that no review is refused for their rate
				w, req := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), method, "http://fleet"+path, nil)
				req.Header.Set("Authorization", authorization)
				mux.ServeHTTP(w, req)
				isHealth := strings.HasSuffix(path, "z") && w.Body.String() == "ok"
				if w.Code < 300 && !isHealth || strings.Contains(w.Body.String(), "content") {
					served = append(served, strings.Join([]string{method, path, authorization}, " "))
				}
			}
		}
	}
	if want := []string{"GET /metrics Bearer reader"}; !slices.Equal(served, want) {
		t.Errorf("served: %q, want %q", served, want)
	}
}

// A path that is not that of a page does not lead to it: the path that was reviewed is served.
func TestDebugPathsHaveOneSpelling(t *testing.T) {
	served := 0
	pages := ServeDebug(Options{Profiling: true}, map[string]http.Handler{
		"/debug/slots": http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }),
	})
	for _, path := range []string{
		"/debug/slots/", "/debug//slots", "/debug/x/../slots", "/debug%2Fslots", "/debug/x%2F..%2Fslots", "/debug/SLOTS", "/debug/pprof/../slots",
	} {
		for _, method := range []string{http.MethodGet, http.MethodConnect} {
			w := httptest.NewRecorder()
			pages.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "http://fleet"+path, nil))
			if served != 0 || w.Code == http.StatusOK {
				t.Fatalf("%s %s: status %d, and the page was served %d times", method, path, w.Code, served)
			}
		}
	}
}

// Readers of metrics that do not read keep the series in memory.
func TestScrapesInFlightAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gathering := make(chan struct{})
		handler := ServeMetrics(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
			<-gathering
			return nil, nil
		}), prometheus.NewRegistry(), klog.Background())
		get := func() int {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
			return w.Code
		}
		var readers sync.WaitGroup
		for range scrapesAtOnce {
			readers.Go(func() {
				if status := get(); status != http.StatusOK {
					t.Errorf("status %d, want 200", status)
				}
			})
		}
		synctest.Wait()
		if status := get(); status != http.StatusServiceUnavailable {
			t.Errorf("status %d beyond the bound, want 503", status)
		}
		close(gathering)
		readers.Wait()
		if status := get(); status != http.StatusOK {
			t.Errorf("status %d afterwards, want 200", status)
		}
	})
}

// What clients cause does not fill the log at the chart's level.
func TestHandshakeErrorsAreLoggedAtAHighLevel(t *testing.T) {
	files, _ := newCertificateFiles(t)
	for level, want := range map[int][]string{2: nil, 4: {"TLS handshake error"}} {
		log := logLines{level: level}
		page := http.HandlerFunc(ok)
		o := Options{TLSCertFile: files.cert, TLSKeyFile: files.key, Address: "127.0.0.1"}
		s, err := Serve(klog.NewContext(t.Context(), log.logger()), o, Pages{Metrics: page, Debug: page, Statusz: page, Flagz: page}, Health{
			Live: func(context.Context) zpages.Report { return zpages.Report{} },
		})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.address.String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, strings.Repeat("x", 100)); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, conn) // until the server closes it
		_ = conn.Close()
		s.Close()
		log.expect(t, want...)
	}
}

// logLines are the messages of a log.
type logLines struct {
	level int

	mu    sync.Mutex
	lines []string
}

func (l *logLines) logger() klog.Logger {
	return funcr.New(func(_, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = append(l.lines, args)
	}, funcr.Options{Verbosity: l.level})
}

// expect checks that the log has a line for each text, in this order, and no other line.
func (l *logLines) expect(t *testing.T, texts ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.EqualFunc(l.lines, texts, strings.Contains) {
		t.Errorf("log %q, want %q", l.lines, texts)
	}
}
