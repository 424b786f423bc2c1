package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
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
	dir                       string
	clusters, light, replicas int
	machines, mostMachines    int // of each cluster
	most                      int // replicas, while the fleet is scaled
	hibernate, moved, sample  int // clusters
	pairs                     int
	mcm                       string // folder
	rest, warm, interval      time.Duration
	long                      time.Duration
	parts, only, second       string
	keep                      bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var o options
	flag.StringVar(&o.dir, "lab-dir", ".lab-landscape",
		"`folder` of the lab, which is started, and stopped at the end; one that runs is used as it is")
	flag.IntVar(&o.clusters, "clusters", 20, "`number` of target clusters with a real API server")
	flag.IntVar(&o.light, "light", 180, "`number` of target clusters with a light API server")
	flag.IntVar(&o.machines, "machines", 5, "minimum `number` of machines of each cluster")
	flag.IntVar(&o.mostMachines, "most-machines", 20, "maximum `number` of machines of each cluster; they differ")
	flag.IntVar(&o.replicas, "replicas", 3, "`number` of replicas of the fleet")
	flag.IntVar(&o.most, "most-replicas", 6, "`number` of replicas to which the fleet is scaled, from one less than --replicas")
	flag.IntVar(&o.hibernate, "hibernate", 50, "`number` of clusters that hibernate")
	flag.IntVar(&o.moved, "moved", 20, "`number` of clusters that move to another fleet")
	flag.StringVar(&o.second, "second-program", "",
		"`program` of the second fleet, such as that of another version; by default that of the first")
	flag.IntVar(&o.sample, "sample", 100, "`number` of clusters to which machines are added while another has a fault")
	flag.StringVar(&o.only, "fault", "", "the only `fault` to measure, such as hangs")
	flag.IntVar(&o.pairs, "pairs", 10, "`number` of clusters with a pair of Machine Controller Manager's processes")
	flag.StringVar(&o.mcm, "mcm", "bin", "`folder` of machine-controller-manager and machine-controller")
	flag.DurationVar(&o.warm, "warm", time.Minute, "`time` before a measurement at rest")
	flag.DurationVar(&o.rest, "rest", 5*time.Minute, "`time` for which use at rest is measured")
	flag.DurationVar(&o.interval, "interval", spacing, "`time` between two changes of a load, and between two machines that are added")
	flag.DurationVar(&o.long, "long", time.Hour, "`time` of the part long")
	flag.StringVar(&o.parts, "parts", "rest,roll,rotate,hibernate,scale,isolate",
		"what to measure, separated by commas; long, fleets, which needs a separate lab, "+
			"and pairs, which needs the programs in --mcm, are measured only when named")
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
		options := harness.Options{Dir: o.dir, Clusters: o.clusters, Light: o.light, Replicas: o.replicas, Output: os.Stdout}
		if strings.Contains(o.parts, "fleets") {
			options.FleetFlags = "--namespace-selector=" + ofFirst
		}
		lab, err = harness.Up(ctx, options)
		if err == nil && !o.keep {
			defer func() { err = errors.Join(err, lab.Down(ctx)) }()
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
	l, err := newLandscape(lab, o)
	if err != nil {
		return err
	}
	if err := l.create(ctx); err != nil {
		return err
	}
	for part := range strings.SplitSeq(o.parts, ",") {
		if err := l.part(ctx, part); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", part, err), l.rows.write())
		}
	}
	return l.rows.write()
}

// part measures one part.
func (l *landscape) part(ctx context.Context, name string) error {
	parts := map[string]func(context.Context) error{
		"rest": l.measureRest, "roll": l.measureRoll, "rotate": l.measureRotation, "hibernate": l.measureHibernation, "scale": l.measureScaling,
		"isolate": l.measureIsolation, "long": l.measureLong, "fleets": l.measureFleets, "pairs": l.measurePairs,
	}
	if parts[name] == nil {
		return fmt.Errorf("--parts: expected some of %s, got %q", strings.Join(slices.Sorted(maps.Keys(parts)), ", "), name)
	}
	return parts[name](ctx)
}
