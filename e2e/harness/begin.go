package harness

import (
	"cmp"
	"context"
	"os"
	"os/signal"
	"syscall"
	"testing"
)

// Begin starts a lab for one test, with two clusters unless the options have a number. The lab is
// stopped in any case and checked for requests that were forbidden to the fleet, outside of
// outages; nil stands for none. The context is that of Lab.Context, and ends on an interrupt, too.
// The lab's folder stays when the test has failed.
func Begin(t *testing.T, o Options, outages func() []Outage) (context.Context, *Lab) {
	t.Helper()
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	t.Cleanup(stop)
	ctx = untilCleanUp(ctx, t)
	dir, err := os.MkdirTemp("", "lab-") //nolint:usetesting // it stays when the test fails, for its logs
	if err != nil {
		t.Fatal(err)
	}
	o.Dir, o.Clusters = dir, cmp.Or(o.Clusters, 2)
	lab, err := Up(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Down(context.Background()); err != nil {
			t.Error(err)
		}
		var away []Outage
		if outages != nil {
			away = outages()
		}
		if err := forbiddenBut(dir, o.Refused, away); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the lab's logs are in %s/logs", dir)
		} else if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return lab.whileUp(ctx, t), lab
}
