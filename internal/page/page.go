package page

import (
	"context"
	"embed"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
)

// Path is below which the page is served, and what a client needs the right to get.
const Path = "/page/"

//go:embed static
var files embed.FS

const (
	cookieName = "__Host-fleet-page"
	// mostForm is how many bytes the form of a login has, and mostToken those of a token.
	mostForm, mostToken = 32 << 10, 16 << 10
	// policy is the Content-Security-Policy of all answers.
	policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; " +
		"base-uri 'none'; frame-ancestors 'none'"
)

const otherSite = "expected a request of this page itself, got one of another site"

// Access decides who may see the page.
type Access interface {
	// Review returns the user that bears a token, whose other tokens have the same one, and the status
	// for that user: OK, Unauthorized, Forbidden, or another one where that is not known. The user is
	// known where the status is OK.
	Review(ctx context.Context, token, verb, path string) (user string, status int, err error)
	// ReviewLogin is Review for a token that is not known yet, of a login. Their rate is bounded.
	ReviewLogin(ctx context.Context, token, verb, path string) (user string, status int, err error)
}

// Config has the parts of a Page. Source and Clock are required.
type Config struct {
	Source Source
	Clock  clock.WithTicker
	// Access is nil where clients on loopback addresses may see the page, without a login.
	Access Access
}

// Validate reports what is missing.
func (c Config) Validate() error { return required.Fields(c, "Access") }

// Page serves the page. New returns one.
type Page struct {
	cfg      Config
	hub      *hub
	sessions *sessions
	logins   *logins
	origin   *http.CrossOriginProtection
	mux      *http.ServeMux
	closed   chan struct{} // when the process ends
}

// New returns a Page. Errors: required fields are missing.
func New(cfg Config) (*Page, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	p := &Page{
		cfg: cfg, hub: newHub(cfg.Source, cfg.Clock), sessions: newSessions(cfg.Clock), origin: http.NewCrossOriginProtection(),
		logins: newLogins(cfg.Clock), mux: http.NewServeMux(), closed: make(chan struct{}),
	}
	static, err := fs.Sub(files, "static")
	if err != nil {
		return nil, err
	}
	served := http.StripPrefix(Path, http.FileServerFS(static))
	for _, name := range []string{"app.js", "tiles.js", "tables.js", "style.css", "icon.svg"} {
		p.mux.Handle("GET "+Path+name, served)
	}
	p.mux.HandleFunc("GET "+Path+"{$}", p.index)
	p.mux.HandleFunc("GET "+Path+"events", p.guarded(p.stream))
	p.mux.HandleFunc("POST "+Path+"login", p.login)
	p.mux.HandleFunc("POST "+Path+"logout", p.logout)
	return p, nil
}

// Run computes what viewers see, while there are any, until ctx ends.
func (p *Page) Run(ctx context.Context) {
	defer close(p.closed)
	p.hub.run(ctx)
}

// ServeHTTP serves the page.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range map[string]string{
		"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
		"X-Frame-Options": "DENY",
	} {
		w.Header().Set(name, value)
	}
	if p.cfg.Access == nil && !isLocal(r) {
		http.Error(w, "expected a connection to a loopback address, as kubectl port-forward opens it, and one in the URL; "+
			"--metrics-authorization serves this page to others", http.StatusForbidden)
		return
	}
	if err := p.origin.Check(r); err != nil {
		http.Error(w, otherSite, http.StatusForbidden)
		return
	}
	p.mux.ServeHTTP(w, r)
}

// isLocal reports whether a client is on a loopback address and has addressed one: a name that an
// attacker has resolve to one would give its site access by the browser of a user.
func isLocal(r *http.Request) bool {
	here, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if here == nil || !isLoopback(here.String()) || !isLoopback(r.RemoteAddr) || r.Header.Get("Forwarded") != "" ||
		r.Header.Get("X-Forwarded-For") != "" {
		return false
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	address, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && address.IsLoopback()
}

// isLoopback reports whether an address with a port is one of the loopback interface.
func isLoopback(address string) bool {
	parsed, err := netip.ParseAddrPort(address)
	return err == nil && parsed.Addr().Unmap().IsLoopback()
}

// bearer returns the token of a request, and the cookie of the session that has it, if one has.
func (p *Page) bearer(r *http.Request) (token, session string) {
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return strings.TrimSpace(token), ""
	}
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return "", ""
	}
	return p.sessions.token(cookie.Value), cookie.Value
}

// streamsOf returns how many streams a user may have. Without Access all are one.
func (p *Page) streamsOf() int {
	if p.cfg.Access == nil {
		return mostViewers
	}
	return mostOfUser
}

// status returns the user that has sent a request, and its HTTP status: OK when that one may see
// the page. It ends the session of a token that is not valid any more.
func (p *Page) status(r *http.Request) (user string, status int) {
	if p.cfg.Access == nil {
		return "", http.StatusOK
	}
	token, session := p.bearer(r)
	user, status = p.review(r, token, p.cfg.Access.Review)
	if status == http.StatusUnauthorized && session != "" {
		p.sessions.end(session)
	}
	return user, status
}

func (p *Page) review(
	r *http.Request, token string, by func(ctx context.Context, token, verb, path string) (string, int, error),
) (user string, status int) {
	if token == "" || len(token) > mostToken {
		return "", http.StatusUnauthorized
	}
	user, status, err := by(r.Context(), token, "get", Path)
	if err != nil {
		klog.FromContext(r.Context()).V(2).Info("Request could not be reviewed", "path", Path, "err", err)
	}
	return user, status
}

// guarded returns a handler that serves those who may see the page, unless their browser asks for
// another site: that one would get no data, and could use up all streams.
func (p *Page) guarded(next func(w http.ResponseWriter, r *http.Request, user string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
			http.Error(w, otherSite, http.StatusForbidden)
			return
		}
		user, status := p.status(r)
		if status != http.StatusOK {
			http.Error(w, problem(status), status)
			return
		}
		next(w, r, user)
	}
}

// index serves the page, or the form of the login.
func (p *Page) index(w http.ResponseWriter, r *http.Request) {
	if _, status := p.status(r); status != http.StatusOK {
		p.form(w, status, "")
		return
	}
	p.html(w, http.StatusOK, "index.html", p.signOut())
}

// signOut returns the button that ends a session; "" where there are none.
func (p *Page) signOut() string {
	if p.cfg.Access == nil {
		return ""
	}
	return `<form method="post" action="/page/logout"><button>Sign out</button></form>`
}

// form serves the form of the login.
func (p *Page) form(w http.ResponseWriter, status int, what string) {
	if status == http.StatusForbidden {
		what = problem(status)
	}
	p.html(w, status, "login.html", what)
}

// html serves a file with a text in it, one of this package's.
func (p *Page) html(w http.ResponseWriter, status int, name, text string) {
	content, err := files.ReadFile("static/" + name)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(strings.ReplaceAll(string(content), "<!-- text -->", text)))
}

// problem returns why a request is not served.
func problem(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "The API server of the control cluster does not know this token. Is it one of that cluster, and still valid?"
	case http.StatusForbidden:
		return "This user may not see the page: bind the ClusterRole …:page-reader of the chart, which allows to get /page/."
	case http.StatusTooManyRequests:
		return "Too many logins have been tried. Try again in a few seconds."
	}
	return "The API server of the control cluster does not say whether this user may see the page. Try again."
}

// login begins a session for the bearer of a token.
func (p *Page) login(w http.ResponseWriter, r *http.Request) {
	if p.cfg.Access == nil {
		http.Redirect(w, r, Path, http.StatusSeeOther)
		return
	}
	if r.TLS == nil && !isLocal(r) {
		http.Error(w, "expected HTTPS, or a loopback address, for a login: a token must not be sent in clear text; see --tls-self-signed",
			http.StatusForbidden)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, mostForm)
	token := strings.TrimSpace(r.PostFormValue("token"))
	if isToken := token != "" && len(token) <= mostToken; isToken && !p.logins.accept(r.RemoteAddr) {
		p.form(w, http.StatusTooManyRequests, problem(http.StatusTooManyRequests))
		return
	}
	user, status := p.review(r, token, p.cfg.Access.ReviewLogin)
	if status != http.StatusOK {
		p.form(w, status, problem(status))
		return
	}
	p.endSession(r)
	p.setCookie(w, p.sessions.begin(user, token), sessionFor)
	http.Redirect(w, r, Path, http.StatusSeeOther)
}

// logout ends a session.
func (p *Page) logout(w http.ResponseWriter, r *http.Request) {
	p.endSession(r)
	p.setCookie(w, "", -time.Second)
	http.Redirect(w, r, Path, http.StatusSeeOther)
}

// endSession ends the session of the cookie of a request.
func (p *Page) endSession(r *http.Request) {
	if cookie, err := r.Cookie(cookieName); err == nil {
		p.sessions.end(cookie.Value)
	}
}

func (p *Page) setCookie(w http.ResponseWriter, value string, age time.Duration) {
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: value, Path: "/", MaxAge: int(age / time.Second), HttpOnly: true, Secure: true,
		SameSite: http.SameSiteStrictMode,
	})
}
