package zpages

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func get(t *testing.T, handler http.Handler, path string) (status int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	if kind := w.Header().Get("Content-Type"); w.Code != http.StatusMovedPermanently && kind != "text/plain; charset=utf-8" {
		t.Errorf("%s has the content type %q", path, kind)
	}
	return w.Code, w.Body.String()
}

func TestHealth(t *testing.T) {
	mux := http.NewServeMux()
	RegisterHealth(mux, "/livez", func(context.Context) Report { return Report{Checks: []Check{{Name: "ping"}, {Name: "loop"}}} })
	RegisterHealth(mux, "/readyz", func(context.Context) Report {
		return Report{
			Checks: []Check{{Name: "ping"}, {Name: "lease", Err: errors.New("not\nheld")}, {Name: "slots", Err: errors.New("none")}},
			Notes:  []string{"the target is away"},
		}
	})
	for _, tc := range []struct {
		path   string
		status int
		body   string
	}{
		{"/livez", 200, "ok"},
		{"/livez?verbose", 200, "[+]ping ok\n[+]loop ok\nlivez check passed\n"},
		{"/livez?verbose&exclude=loop", 200, "[+]ping ok\n[+]loop excluded: ok\nlivez check passed\n"},
		{"/livez?exclude=other&verbose=1", 200, "[+]ping ok\n[+]loop ok\nwarn: no check to exclude has the name \"other\"\nlivez check passed\n"},
		{"/livez/loop", 200, "ok"},
		{"/livez/other", 404, "there is no check of this name; ?verbose lists all\n"},
		{"/readyz", 503, "[+]ping ok\n[-]lease failed: not held\n[-]slots failed: none\nwarn: the target is away\nreadyz check failed\n"},
		{
			"/readyz?exclude=lease", 503,
			"[+]ping ok\n[+]lease excluded: ok\n[-]slots failed: none\nwarn: the target is away\nreadyz check failed\n",
		},
		{"/readyz?exclude=lease&exclude=slots", 200, "ok"},
		{"/readyz/ping", 200, "ok"},
		{"/readyz/lease", 503, "not held\n"},
	} {
		status, body := get(t, mux, tc.path)
		if diff := cmp.Diff(tc.body, body); status != tc.status || diff != "" {
			t.Errorf("%s: status %d, want %d; body (-want +got):\n%s", tc.path, status, tc.status, diff)
		}
	}
}

// A check that does not return keeps no request open: its context ends.
func TestHealthEndsAfterATime(t *testing.T) {
	mux := http.NewServeMux()
	RegisterHealth(mux, "/livez", func(ctx context.Context) Report {
		deadline, ok := ctx.Deadline()
		if !ok || time.Until(deadline) > checkTimeout {
			return Report{Checks: []Check{{Name: "deadline", Err: errors.New("none")}}}
		}
		return Report{}
	})
	if status, body := get(t, mux, "/livez"); status != http.StatusOK {
		t.Errorf("status %d: %s", status, body)
	}
}

func TestFlagz(t *testing.T) {
	_, body := get(t, Flagz("fleet", []Row{{"a", "1"}, {"b", "two\nlines"}}), "/flagz")
	want := "fleet flagz\nWarning: this page is for people; its format may change in any version.\n\na=1\nb=two lines\n"
	if diff := cmp.Diff(want, body); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStatusz(t *testing.T) {
	started := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	_, body := get(t, Statusz(Status{
		Component: "fleet", Started: started, Now: func() time.Time { return started.Add(26*time.Hour + 3*time.Minute + 4*time.Second) },
		GoVersion: "go1", Version: "0.1", Paths: []string{"/a", "/b"}, More: func(*http.Request) []Row { return []Row{{"Slots", "85"}} },
	}), "/statusz")
	want := `fleet statusz
Warning: this page is for people; its format may change in any version.

Started: Fri Jan  2 03:04:05 UTC 2026
Up: 26 hr 03 min 04 sec
Go version: go1
Binary version: 0.1
Paths: /a /b
Slots: 85
`
	if diff := cmp.Diff(want, body); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
