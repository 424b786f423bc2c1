package harness

import (
	"cmp"
	"context"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

// cleanUp is how long before the time limit of all tests a test stops waiting: a test that still runs at the limit is killed and
// leaves its lab behind.
const cleanUp = 20 * time.Second

// Begin starts a lab for one test, with two clusters unless the options have a number. The lab is stopped in any case and checked for requests that were forbidden
// to the fleet, outside of outages; nil stands for none. The context ends with the test, on an interrupt, and shortly before the
// time for all tests is over. The lab's folder stays when the test has failed.
func Begin(t *testing.T, o Options, outages func() []Outage) (context.Context, *Lab) {
	t.Helper()
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	t.Cleanup(stop)
	if end, limited := t.Deadline(); limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end.Add(-cleanUp))
		t.Cleanup(cancel)
	}
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
	return ctx, lab
}
