package bynamespace

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/targettest"
)

// sends is a function that sends requests.
type sends func(r *http.Request) (*http.Response, error)

func (s sends) RoundTrip(r *http.Request) (*http.Response, error) { return s(r) }

// listsNodes has answer answer the lists of Nodes.
func listsNodes(answer func(r *http.Request) (*http.Response, error)) func(next http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return sends(func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/nodes") && r.URL.Query().Get("watch") == "" {
				return answer(r)
			}
			return next.RoundTrip(r)
		})
	}
}

// Of a server that answers each page of the Nodes with another one after it the list ends, and its
// target is not available.
func TestTargetWhoseNodesHaveNoEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		items string
		junk  int
		want  string
		pages int64
	}{
		"no Nodes": {"", 0, "more than 10 pages without objects", 11},
		"junk":     {`{"metadata":{"name":"n"}}`, 1 << 20, "more than 64 MiB of answers", 65},
	} {
		t.Run(name, func(t *testing.T) {
			inLandscape(t, byName, func(l *landscape) {
				pages := atomic.Int64{}
				page := `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"1","continue":"x"},"junk":"` +
					strings.Repeat("x", tc.junk) + `","items":[` + tc.items + `]}`
				l.hostile = map[string]func(http.RoundTripper) http.RoundTripper{
					"https://a.example": listsNodes(func(r *http.Request) (*http.Response, error) {
						pages.Add(1)
						return &http.Response{
							StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
							Body: io.NopCloser(strings.NewReader(page)), Request: r,
						}, nil
					}),
				}
				l.put("one", "target", targettest.SecretOf("https://a.example", "t"))
				l.targets.Use("one")
				l.expect(time.Second, "one", tc.want)
				l.expect(tooManyPause/2, "one", tc.want)
				if got := pages.Load(); got != tc.pages {
					t.Errorf("%d pages were read until after a pause, want %d", got, tc.pages)
				}
				l.hostile = nil
			})
		})
	}
}

// A target that does not become available has a reason, also while nothing has failed yet.
func TestTargetThatIsOpenedForTooLong(t *testing.T) {
	inLandscape(t, byName, func(l *landscape) {
		goOn := make(chan struct{})
		l.hostile = map[string]func(http.RoundTripper) http.RoundTripper{}
		l.hostile["https://a.example"] = func(next http.RoundTripper) http.RoundTripper {
			return listsNodes(func(r *http.Request) (*http.Response, error) {
				select {
				case <-goOn:
				case <-r.Context().Done():
				}
				return next.RoundTrip(r)
			})(next)
		}
		var reports atomic.Int64
		l.targets.OnChange(func(string) { reports.Add(1) })
		l.put("one", "target", targettest.SecretOf("https://a.example", "t"))
		l.targets.Use("one")
		isPending := func() bool {
			_, err := l.targets.For("one")
			unavailable, is := errors.AsType[*target.UnavailableError](err)
			return is && unavailable.Pending
		}
		l.expect(5*time.Second, "one", "its Nodes are being listed")
		before := reports.Load()
		if !isPending() {
			t.Error("a target that has just been opened has a problem")
		}
		l.expect(5*time.Second, "one", "it is not available 10s after it began to be opened: its Nodes are being listed")
		if isPending() || reports.Load() != before+1 {
			t.Errorf("a target that is opened for too long is pending, or was reported %d times", reports.Load()-before)
		}
		close(goOn)
		l.expect(time.Second, "one", "node-1")
	})
}
