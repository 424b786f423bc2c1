package harness

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestEventuallyEndsWithProgress: a wait lasts as long as there is progress, and no longer than
// Standstill without any.
func TestEventuallyEndsWithProgress(t *testing.T) {
	for name, c := range map[string]struct {
		progressFor, want time.Duration // 0: until the end
		err               string
	}{
		"progress for hours": {want: 5 * time.Hour},
		"no progress":        {progressFor: 1, want: Standstill, err: "nothing has changed for 10m0s; last error: 0 min"},
		"progress that ends": {progressFor: time.Hour, want: time.Hour + Standstill, err: "last error: 60 min"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				err := EventuallyLasting(t.Context(), pollInterval, "it is there", func(context.Context) error {
					passed := time.Since(began)
					if passed >= 5*time.Hour {
						return nil
					}
					if c.progressFor > 0 {
						passed = min(passed, c.progressFor)
					}
					return fmt.Errorf("%.0f min", passed.Minutes())
				})
				if took := time.Since(began); took.Round(time.Minute) != c.want {
					t.Errorf("it ended after %s, want %s", took, c.want)
				}
				if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
					t.Errorf("the error is %v, want %q", err, c.err)
				}
			})
		})
	}
}

// TestEventuallyEndsARequestWithoutAnAnswer: the check itself may hang.
func TestEventuallyEndsARequestWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := Eventually(t.Context(), "it answers", func(ctx context.Context) error { <-ctx.Done(); return errors.New("no answer") })
		if err == nil || !strings.Contains(err.Error(), "no answer") {
			t.Errorf("the error is %v", err)
		}
	})
}

// TestWaitsEndWithTheLab: nothing makes progress after the launcher has ended, and the error
// reports that.
func TestWaitsEndWithTheLab(t *testing.T) {
	ended := httptest.NewServer(nil)
	ended.Close()
	lab := labOf(t, nil)
	lab.launcher = ended.URL
	err := Eventually(lab.Context(t), "it is there", func(context.Context) error { return errors.New("it is not") })
	if err == nil || !strings.Contains(err.Error(), "has ended; last error: it is not") {
		t.Errorf("the error is %v", err)
	}
}
