package runner

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/apianswers"
)

// dated answers with a time.
type dated func() time.Time

// RoundTrip is http.RoundTripper's.
func (d dated) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Date": {d().UTC().Format(http.TimeFormat)}}, Body: io.NopCloser(strings.NewReader("")),
		Request: r,
	}, nil
}

// The clock of a cluster is corrected by an hour back when its API server's clock was wrong for
// some minutes: a key that waits for 10 s waits for 10 s.
func TestDelayIsKeptWhenTheClockOfAClusterIsSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ahead := time.Hour
		wall := apianswers.NewClock(clock.RealClock{}, "control")
		way := wall.Wrap(dated(func() time.Time { return time.Now().Add(ahead) }))
		answer := func() {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server/", http.NoBody)
			if response, err := way.RoundTrip(r); err != nil || response.Body.Close() != nil {
				t.Error("no answer")
			}
		}
		answer()
		var passes []time.Duration
		begun := time.Now()
		r := start(t, Config[string]{Clock: wall, Reconcile: func(context.Context, string) (Result, error) {
			passes = append(passes, time.Since(begun))
			return Result{RequeueAfter: 10 * time.Second}, nil
		}})
		r.Enqueue("key")
		elapse(time.Minute)
		ahead = 0
		for range 4 {
			answer()
			elapse(10 * time.Second)
		}
		before, from := len(passes), time.Since(begun)
		elapse(50 * time.Minute)
		if len(passes)-before < 100 {
			t.Errorf("%d passes in the first minute and a half, and in the 50 min after the correction at %s only %d: %v",
				before, from, len(passes)-before, passes[before:])
		}
	})
}
