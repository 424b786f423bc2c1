package page

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/page/pagetest"
)

// oneToken admits the bearer of one token, and of others of the same user, which begin with it and
// a slash.
type oneToken struct {
	mu      sync.Mutex
	token   string
	revoked bool
	away    bool
	asked   int
}

func (o *oneToken) Review(_ context.Context, token, verb, path string) (user string, status int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked++
	user, _, _ = strings.Cut(token, "/")
	switch {
	case o.away:
		return "", http.StatusServiceUnavailable, errors.New("away")
	case verb != "get" || path != "/page/" || user != o.token && token != "other" || o.revoked:
		return "", http.StatusUnauthorized, nil
	case token == "other":
		return "other", http.StatusForbidden, nil
	}
	return user, http.StatusOK, nil
}

func (o *oneToken) ReviewLogin(ctx context.Context, token, verb, path string) (user string, status int, err error) {
	return o.Review(ctx, token, verb, path)
}

func (o *oneToken) revoke() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.revoked = true
}

// local returns a request as one of a client on the loopback interface.
func local(r *http.Request) *http.Request {
	here := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 10258}
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, here))
	r.RemoteAddr, r.Host = "127.0.0.1:4711", "127.0.0.1:10258"
	return r
}

// remote returns a request as one over TLS.
func remote(r *http.Request) *http.Request {
	here := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 10258}
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, here))
	r.RemoteAddr, r.Host, r.TLS = "10.0.0.9:4711", "fleet.example.org", &tls.ConnectionState{}
	return r
}

// reply is an answer of the page.
type reply struct {
	StatusCode int
	Header     http.Header
	body       string
	cookies    []*http.Cookie
}

func answer(p *Page, r *http.Request) reply {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	resp := w.Result()
	defer resp.Body.Close()
	return reply{resp.StatusCode, resp.Header, w.Body.String(), resp.Cookies()}
}

func get(path string) *http.Request { return httptest.NewRequest(http.MethodGet, path, nil) }

func loginWith(token string) *http.Request {
	form := url.Values{"token": {token}}.Encode()
	r := remote(httptest.NewRequest(http.MethodPost, Path+"login", strings.NewReader(form)))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return r
}

func newPage(t *testing.T, access Access) *Page {
	t.Helper()
	p, err := New(Config{Source: pagetest.NewWorld(3, time.Now()), Clock: clock.RealClock{}, Access: access})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func with(r *http.Request, cookies []*http.Cookie) *http.Request {
	for _, c := range cookies {
		r.AddCookie(c)
	}
	return r
}

func TestLoginKeepsNothingButACookie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		access := &oneToken{token: "secret"}
		p := newPage(t, access)
		if resp := answer(p, remote(get(Path))); resp.StatusCode != http.StatusUnauthorized || !strings.Contains(resp.body, "<form") {
			t.Errorf("without a login: status %d", resp.StatusCode)
		}
		for token, want := range map[string]int{"": 401, "wrong": 401, "other": 403} {
			if resp := answer(p, loginWith(token)); resp.StatusCode != want || len(resp.cookies) != 0 {
				t.Errorf("token %q: status %d, want %d; %d cookies", token, resp.StatusCode, want, len(resp.cookies))
			}
		}
		resp := answer(p, loginWith("secret"))
		if resp.StatusCode != http.StatusSeeOther || len(resp.cookies) != 1 {
			t.Fatalf("status %d, %d cookies", resp.StatusCode, len(resp.cookies))
		}
		c := resp.cookies[0]
		if !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" ||
			strings.Contains(c.Value, "secret") {
			t.Errorf("cookie %v", c)
		}
		if resp := answer(p, with(remote(get(Path)), resp.cookies)); resp.StatusCode != http.StatusOK || !strings.Contains(resp.body, "app.js") {
			t.Errorf("with the cookie: status %d", resp.StatusCode)
		}
		if resp := answer(newPage(t, access), with(remote(get(Path)), resp.cookies)); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("with the cookie, at another replica: status %d", resp.StatusCode)
		}
		time.Sleep(idleFor)
		if resp := answer(p, with(remote(get(Path)), resp.cookies)); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("with the cookie, an hour later: status %d", resp.StatusCode)
		}
		again := answer(p, loginWith("secret")).cookies
		logout := with(remote(httptest.NewRequest(http.MethodPost, Path+"logout", nil)), again)
		if resp := answer(p, logout); resp.StatusCode != http.StatusSeeOther || resp.cookies[0].MaxAge >= 0 {
			t.Errorf("logout: status %d", resp.StatusCode)
		}
		if resp := answer(p, with(remote(get(Path)), again)); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("after the logout: status %d", resp.StatusCode)
		}
	})
}

// TestASessionEndsAfterTwelveHours, also one that is used all the time.
func TestASessionEndsAfterTwelveHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPage(t, &oneToken{token: "secret"})
		cookies := answer(p, loginWith("secret")).cookies
		for since := time.Duration(0); since < sessionFor; since += idleFor / 2 {
			if resp := answer(p, with(remote(get(Path)), cookies)); resp.StatusCode != http.StatusOK {
				t.Fatalf("after %s: status %d", since, resp.StatusCode)
			}
			time.Sleep(idleFor / 2)
		}
		if resp := answer(p, with(remote(get(Path)), cookies)); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("status %d", resp.StatusCode)
		}
	})
}

func TestLoginsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		access := &oneToken{token: "secret"}
		p := newPage(t, access)
		from := func(address, token string) int {
			r := loginWith(token)
			r.RemoteAddr = address
			return answer(p, r).StatusCode
		}
		for _, token := range []string{"", strings.Repeat("x", mostToken+1), strings.Repeat("x", 1<<20)} {
			for range 2 * loginsInBurst { // what is no token is not tried
				if got := from("192.0.2.1:1", token); got != http.StatusUnauthorized {
					t.Fatalf("status %d, want 401", got)
				}
			}
		}
		if got := from("192.0.2.1:1", "secret"); got != http.StatusSeeOther || access.asked != 1 {
			t.Errorf("status %d after %d reviews, want 303 after 1", got, access.asked)
		}
		for range 2 * loginsInBurst {
			from("192.0.2.1:1", "wrong")
		}
		if got := from("192.0.2.1:2", "secret"); got != http.StatusTooManyRequests || access.asked != loginsInBurst {
			t.Errorf("status %d after %d reviews, want 429 after %d", got, access.asked, loginsInBurst)
		}
		if got := from("192.0.2.2:1", "secret"); got != http.StatusSeeOther {
			t.Errorf("status %d for another address, want 303", got)
		}
		for i := range 2 * allInBurst {
			from(fmt.Sprintf("[2001:db8:0:%x::1]:1", i), "wrong")
		}
		if access.asked != allInBurst {
			t.Errorf("%d reviews of all addresses, want %d", access.asked, allInBurst)
		}
		time.Sleep(time.Minute)
		for i := range 2 * loginsInBurst {
			from(fmt.Sprintf("[2001:db8::%x]:1", i), "wrong")
		}
		if got := access.asked - allInBurst; got != loginsInBurst {
			t.Errorf("%d reviews of a network of one host, want %d", got, loginsInBurst)
		}
	})
}

// TestTheSessionOfARevokedTokenEnds: nothing of it stays in memory. While it is not known whether
// the token is valid, the session goes on.
func TestTheSessionOfARevokedTokenEnds(t *testing.T) {
	access := &oneToken{token: "secret"}
	p := newPage(t, access)
	cookies := answer(p, loginWith("secret")).cookies
	for _, tc := range []struct {
		away, revoked  bool
		want, sessions int
	}{{false, false, 200, 1}, {true, false, 503, 1}, {false, true, 401, 0}} {
		access.away, access.revoked = tc.away, tc.revoked
		if got := answer(p, with(remote(get(Path)), cookies)).StatusCode; got != tc.want || len(p.sessions.all) != tc.sessions {
			t.Errorf("%+v: status %d, %d sessions", tc, got, len(p.sessions.all))
		}
	}
}

// TestSessionsAreBounded: one more ends the one that was used the longest ago, and one more of a
// user no other's, with whichever token.
func TestSessionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSessions(clock.RealClock{})
		other, first := s.begin("other", "of other"), s.begin("user", "secret")
		for i := range 2 * mostSessions {
			time.Sleep(time.Second)
			s.begin("user", fmt.Sprint("secret", i))
		}
		if s.token(other) != "of other" || s.token(first) != "" || len(s.all) != 1+sessionsOfUser {
			t.Errorf("%d sessions, want one and %d of the other user", len(s.all), sessionsOfUser)
		}
		for i := range 2 * mostSessions {
			time.Sleep(time.Second)
			s.begin(fmt.Sprint(i), "secret")
		}
		if s.token(other) != "" || len(s.all) != mostSessions {
			t.Errorf("%d sessions, want %d without the first one", len(s.all), mostSessions)
		}
	})
}

// TestALoginReplacesTheSessionOfItsBrowser, if it succeeds.
func TestALoginReplacesTheSessionOfItsBrowser(t *testing.T) {
	p := newPage(t, &oneToken{token: "secret"})
	before := answer(p, loginWith("secret")).cookies
	answer(p, with(loginWith("wrong"), before))
	if got := answer(p, with(remote(get(Path)), before)).StatusCode; got != http.StatusOK {
		t.Errorf("after a login that failed: status %d, want 200", got)
	}
	answer(p, with(loginWith("secret"), before))
	if got := answer(p, with(remote(get(Path)), before)).StatusCode; got != http.StatusUnauthorized || len(p.sessions.all) != 1 {
		t.Errorf("after another login: status %d, want 401; %d sessions, want 1", got, len(p.sessions.all))
	}
}

func TestRequestsOfOtherSitesAreRefused(t *testing.T) {
	p := newPage(t, &oneToken{token: "secret"})
	for _, site := range []string{"cross-site", "same-site"} {
		r := loginWith("secret")
		r.Header.Set("Sec-Fetch-Site", site)
		if resp := answer(p, r); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: status %d", site, resp.StatusCode)
		}
		events := local(get(Path + "events"))
		events.Header.Set("Sec-Fetch-Site", site)
		if resp := answer(newPage(t, nil), events); resp.StatusCode != http.StatusForbidden {
			t.Errorf("events, %s: status %d", site, resp.StatusCode)
		}
	}
	plain := loginWith("secret")
	plain.TLS = nil
	if resp := answer(p, plain); resp.StatusCode != http.StatusForbidden || len(resp.cookies) != 0 {
		t.Errorf("a login over HTTP: status %d", resp.StatusCode)
	}
}

// TestAbsentAPIServer: the page cannot be authorized, and the answer is 503.
func TestAbsentAPIServer(t *testing.T) {
	p := newPage(t, &oneToken{token: "secret", away: true})
	resp := answer(p, loginWith("secret"))
	if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(resp.body, "does not say") {
		t.Errorf("status %d", resp.StatusCode)
	}
}

// TestWithoutAccessThePageIsForLoopbackAddresses, under a name of it.
func TestWithoutAccessThePageIsForLoopbackAddresses(t *testing.T) {
	p := newPage(t, nil)
	change := func(f func(r *http.Request)) *http.Request {
		r := local(get(Path))
		f(r)
		return r
	}
	for name, tc := range map[string]struct {
		r    *http.Request
		want int
	}{
		"local":      {local(get(Path)), 200},
		"by name":    {change(func(r *http.Request) { r.Host = "localhost:10258" }), 200},
		"IPv6":       {change(func(r *http.Request) { r.Host = "[::1]:10258" }), 200},
		"rebound":    {change(func(r *http.Request) { r.Host = "attacker.example.org:10258" }), 403},
		"no port":    {change(func(r *http.Request) { r.Host = "attacker.example.org" }), 403},
		"from there": {change(func(r *http.Request) { r.RemoteAddr = "10.0.0.9:1" }), 403},
		"proxied":    {change(func(r *http.Request) { r.Header.Set("X-Forwarded-For", "10.0.0.9") }), 403},
		"remote":     {remote(get(Path)), 403},
	} {
		if resp := answer(p, tc.r); resp.StatusCode != tc.want {
			t.Errorf("%s: status %d, want %d", name, resp.StatusCode, tc.want)
		}
	}
	for path, want := range map[string]int{
		Path + "app.js": 200, Path + "tiles.js": 200, Path + "tables.js": 200, Path + "style.css": 200, Path + "icon.svg": 200,
		Path + "login.html": 404, Path + "index.html": 404, Path + "static/app.js": 404, "/page/x": 404,
	} {
		resp := answer(p, local(get(path)))
		if resp.StatusCode != want || !strings.HasPrefix(resp.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: status %d, want %d; %v", path, resp.StatusCode, want, resp.Header)
		}
	}
	if resp := answer(p, local(httptest.NewRequest(http.MethodPost, Path, nil))); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: status %d", resp.StatusCode)
	}
}

// TestFilesRequestNothingFromElsewhere, and have no way to show a text as markup.
func TestFilesRequestNothingFromElsewhere(t *testing.T) {
	forbidden := regexp.MustCompile(`(?i)innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser|setHTML|` +
		`srcdoc|\son[a-z]+=|<style|style="|javascript:|@import|url\(`)
	address := regexp.MustCompile(`https?:[^"' ]*`)
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, name)
		if found := forbidden.FindString(string(content)); found != "" {
			t.Errorf("%s has %q", name, found)
		}
		for _, found := range address.FindAllString(string(content), -1) {
			if found != "http://www.w3.org/2000/svg" {
				t.Errorf("%s has %s", name, found)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// cpuTime returns the CPU time of this process.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkOpenPage10000 has one page open on 10,000 machines, of which 100 change between two
// states, and then nothing.
func BenchmarkOpenPage10000(b *testing.B) {
	w := pagetest.NewWorld(10_000, time.Now())
	h := newHub(w, clock.RealClock{})
	h.publish(b.Context())
	seen, _ := h.after(nil)
	whole, changes, used := len(seen.full()), 0, time.Duration(0)
	for i := 0; b.Loop(); i++ {
		w.Step(i, 100, time.Now())
		begun := cpuTime(b)
		h.publish(b.Context())
		next, _ := h.after(seen)
		if next == nil {
			b.Fatal("no state")
		}
		changes += len(next.since(seen))
		used += cpuTime(b) - begun
		seen = next
	}
	b.ReportMetric(float64(whole), "bytes/first")
	b.ReportMetric(float64(changes)/float64(b.N), "bytes/change")
	b.ReportMetric(used.Seconds()*1000/float64(b.N), "cpu-ms/change")
}
