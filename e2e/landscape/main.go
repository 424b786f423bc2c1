package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// settings of the cloud: VMs boot at once, so that times are those of the fleet.
const settings = `{
	"latency": {"CreateInstance": {"mean": "200ms", "spread": "0s"}, "DeleteInstance": {"mean": "200ms", "spread": "0s"}},
	"bootTime": {"mean": "0s", "spread": "0s"}, "stopTime": {"mean": "0s", "spread": "0s"}
}`

// options of a run.
type options struct {
	dir                                 string
	clusters, light, machines, replicas int
	most                                int // replicas, while the fleet is scaled
	rest, warm                          time.Duration
	parts                               string
	keep                                bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var o options
	flag.StringVar(&o.dir, "lab-dir", ".lab-landscape",
		"`folder` of the lab, which is started, and stopped at the end; one that runs is used as it is")
	flag.IntVar(&o.clusters, "clusters", 20, "`number` of target clusters with a real API server")
	flag.IntVar(&o.light, "light", 180, "`number` of target clusters with a light API server")
	flag.IntVar(&o.machines, "machines", 5, "`number` of machines of each cluster")
	flag.IntVar(&o.replicas, "replicas", 3, "`number` of replicas of the fleet")
	flag.IntVar(&o.most, "most-replicas", 6, "`number` of replicas to which the fleet is scaled")
	flag.DurationVar(&o.warm, "warm", time.Minute, "`time` before a measurement at rest")
	flag.DurationVar(&o.rest, "rest", 5*time.Minute, "`time` for which use at rest is measured")
	flag.StringVar(&o.parts, "parts", "rest,roll,isolate,rotate,scale", "what to measure, separated by commas")
	flag.BoolVar(&o.keep, "keep", false, "leave the lab running")
	flag.Parse()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "landscape:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

func run(ctx context.Context, o options) (err error) {
	lab, err := harness.Open(ctx, o.dir)
	if err != nil {
		lab, err = harness.Up(ctx, harness.Options{Dir: o.dir, Clusters: o.clusters, Light: o.light, Replicas: o.replicas, Output: os.Stdout})
		if err == nil && !o.keep {
			defer func() {
				if down := lab.Down(ctx); err == nil {
					err = down
				}
			}()
		}
	}
	if err != nil {
		return err
	}
	if err := lab.WaitHeld(ctx, harness.DefaultSlots); err != nil {
		return err
	}
	if err := lab.Cloud.Set(ctx, settings); err != nil {
		return err
	}
	l, err := newLandscape(ctx, lab, o)
	if err != nil {
		return err
	}
	if err := l.create(ctx); err != nil {
		return err
	}
	parts := map[string]func(context.Context) error{
		"rest": l.measureRest, "roll": l.measureRoll, "isolate": l.measureIsolation, "rotate": l.measureRotation, "scale": l.measureScaling,
	}
	for part := range strings.SplitSeq(o.parts, ",") {
		if parts[part] == nil {
			return fmt.Errorf("--parts: expected rest, roll, isolate, rotate or scale, got %q", part)
		}
		if err := parts[part](ctx); err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
	}
	return nil
}
