package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bubbles"
)

var (
	oneSeed = flag.Int64("seed", -1, "run this seed alone, and tell its story")
	howMany = flag.Int("seeds", 60, "how many seeds to run")
	first   = flag.Uint64("first", 0, "the first seed")
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	bubbles.Main(m)
}

// newLogger logs into the story.
func newLogger(t *trial) logr.Logger {
	return funcr.New(func(prefix, args string) { t.tell("  %s %s", prefix, args) }, funcr.Options{})
}

func TestWholeFleetServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var story strings.Builder
		r := newTrial(t, 1, &story)
		defer func() {
			r.end()
			fmt.Fprintln(os.Stderr, story.String())
			if r.wrong != "" {
				t.Error(r.wrong)
			}
		}()
		for _, namespace := range []string{"a", "b"} {
			r.furnish(namespace)
			for i := range 5 {
				r.want(namespace, fmt.Sprint("root-", i), 1)
			}
		}
		for i := range 3 {
			r.start(fmt.Sprint("fleet-", i))
		}
		if !r.run(5*time.Minute, func() bool { return r.missing() == "" }) {
			r.fail("%s", r.missing())
		}
		r.tell("rests; %d requests: %v", r.oracle.sentAll, r.oracle.byKind)
	})
}
