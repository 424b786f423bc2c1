package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// settings of the cloud during the measurements; the figures of MCM that we compare with were taken
// with the same.
const settings = `{
"latency":{"CreateInstance":{"mean":"200ms","spread":"0s"},"DeleteInstance":{"mean":"200ms","spread":"0s"}},
"bootTime":{"mean":"3s","spread":"0s"},"stopTime":{"mean":"0s","spread":"0s"}}`

// fleetSize is how many replicas a lab of our own has.
const fleetSize = 3

// options of a run.
type options struct {
	dir      string
	runs     int
	kills    int
	machines int
	draining int
	creates  int
	rounds   int
	rest     time.Duration
	parts    string
	sizes    string
	fleets   string
	cores    float64
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var o options
	flag.StringVar(&o.dir, "lab-dir", ".lab", "`folder` of the lab; one that does not run is started, and stopped at the end")
	flag.IntVar(&o.runs, "runs", 3, "`number` of runs of creating and deleting machines, of which the median counts")
	flag.IntVar(&o.kills, "kills", 20, "`number` of replicas that are killed, every other one the leader")
	flag.IntVar(&o.machines, "machines", 10000, "`number` of machines that memory, scrapes and the page are measured with")
	flag.IntVar(&o.draining, "draining", 500, "`number` of Nodes that are drained while machines are created")
	flag.IntVar(&o.creates, "creates", 200,
		"`number` of machines that are created while the process of their driver is killed, and as many before")
	flag.IntVar(&o.rounds, "rounds", 5,
		"`number` of rounds in which the CPU time of replicas with and without tracing is compared, of which the median counts")
	flag.DurationVar(&o.rest, "rest", 5*time.Minute,
		"`time` for which CPU and requests are measured at rest; within the default each kubelet reports the status of its Node")
	flag.StringVar(&o.parts, "parts",
		"create,delete-empty,rest,roll,roll-many,stop,drain,hand-over,take-over,memory,sweep,tracing,scrape,driver",
		"what to measure, separated by commas; take-over, memory and sweep leave machines without VMs behind, and need a separate lab, "+
			"as cpu and leader do; cpu, leader, scale and quota take 20 minutes and are measured only when they are named, as page; "+
			"tracing, scrape, page, driver and machineconfig start additional labs")
	flag.StringVar(&o.sizes, "scale-sizes", "1000x20",
		"`numbers` of machines and of their MachineDeployments for the parts scale and quota, separated by commas")
	flag.StringVar(&o.fleets, "scale-replicas", "1,3,8", "`numbers` of replicas for the parts scale and quota, separated by commas")
	flag.Float64Var(&o.cores, "quota", 0.1, "`share` of a core that each replica may use in the part quota, which needs root")
	flag.Parse()
	missed, err := bench(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
	if err != nil || missed {
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

func bench(ctx context.Context, o options) (missed bool, err error) {
	lab, err := harness.Open(ctx, o.dir)
	own := err != nil
	if own {
		fmt.Println("Starting a lab in", o.dir)
		lab, err = harness.Up(ctx, harness.Options{Dir: o.dir, Replicas: fleetSize})
		if err == nil {
			defer func() {
				if down := lab.Down(ctx); err == nil {
					err = down
				}
			}()
		}
	}
	if err != nil {
		return false, err
	}
	if err := lab.WaitHeld(ctx, slots); err != nil {
		return false, err
	}
	if err := lab.Cloud.Set(ctx, settings); err != nil {
		return false, err
	}
	measured, once := []sample(nil), sample{}
	for part := range strings.SplitSeq(o.parts, ",") {
		switch {
		case part == "create":
			measured, err = measureCreates(ctx, lab, o.runs)
		case part == "delete-empty":
			err = measureEmpty(ctx, lab, once)
		case part == "roll":
			err = measureRolls(ctx, lab, once)
		case part == "roll-many":
			err = measureManyRolls(ctx, lab, once)
		case part == "rest":
			err = measureRest(ctx, lab, o.rest, once)
		case part == "stop":
			err = measureStops(ctx, lab, once)
		case part == "drain":
			err = measureDrains(ctx, lab, o.draining, once)
		case part == "hand-over":
			err = measureHandOvers(ctx, lab, once)
		case part == "tracing":
			err = measureTracing(ctx, o.dir, o.rounds, once)
		case part == "machineconfig":
			err = measureConfigs(ctx, o.dir, once)
		case part == "scrape":
			err = measureScrapes(ctx, o.dir, o.machines, once)
		case part == "page":
			err = measurePage(ctx, o.dir, o.machines, o.rest, once)
		case part == "driver":
			err = measureKilledDriver(ctx, o.dir, o.creates, once)
		case part == "scale":
			err = measureScale(ctx, lab, o, once)
		case part == "quota":
			err = measureQuota(ctx, lab, o, once)
		case !own:
			fmt.Println("Skipped:", part, "needs a separate lab, see --lab-dir")
		case part == "take-over":
			err = measureDeaths(ctx, lab, o.kills, once)
		case part == "memory":
			err = measureMemory(ctx, lab, o.machines, once)
		case part == "sweep":
			err = measureSweep(ctx, lab, o.machines, once)
		case part == "leader":
			err = measureLeader(ctx, lab, o.machines, o.rest, once)
		case part == "cpu":
			err = measureCPU(ctx, lab, o.rest, once)
		default:
			err = fmt.Errorf("--parts: expected create, delete-empty, rest, roll, roll-many, stop, drain, hand-over, take-over, memory, sweep, "+
				"tracing, scrape, page, driver, machineconfig, cpu, leader, quota or scale, got %q", part)
		}
		if err != nil {
			_, reporting := conclude(measured, once, o.dir) // what the parts before it have measured, which takes long
			return false, errors.Join(fmt.Errorf("%s: %w", part, err), reporting)
		}
	}
	return conclude(measured, once, o.dir)
}

// conclude prints and writes the report of all samples.
func conclude(measured []sample, once sample, dir string) (missed bool, err error) {
	if len(measured) == 0 {
		measured = []sample{{}}
	}
	for _, s := range measured {
		maps.Copy(s, once)
	}
	rows, err := report(measured)
	if err != nil {
		return false, err
	}
	fmt.Print(table(rows))
	return anyMissed(rows), write(rows, filepath.Join(dir, "bench.json"))
}

// toReplicas applies an action to all replicas.
func toReplicas(ctx context.Context, lab *harness.Lab, action string) error {
	replicas, err := lab.Replicas(ctx)
	for _, replica := range replicas {
		err = errors.Join(err, lab.Do(ctx, replica, action))
	}
	return err
}

// measureCreates measures several times how the fleet creates and deletes the machines, each
// followed by the floor.
func measureCreates(ctx context.Context, lab *harness.Lab, runs int) (measured []sample, err error) {
	for run := range runs {
		if err := rebalanced(ctx, lab); err != nil { // a slot that moves causes a new list of its objects
			return nil, err
		}
		fmt.Printf("run %d of %d: the fleet", run+1, runs)
		s, err := measureFleet(ctx, lab, fmt.Sprintf("bench-%d-%d", os.Getpid(), run))
		if err != nil {
			return nil, err
		}
		fmt.Printf(" (%.2f s, %.2f s), the floor", s["create_100_seconds"].value, s["delete_100_seconds"].value)
		if err := toReplicas(ctx, lab, harness.Pause); err != nil { // they would reconcile the floor's objects
			return nil, err
		}
		err = measureFloor(ctx, lab, fmt.Sprintf("floor-%d-%d", os.Getpid(), run), s)
		if err := errors.Join(err, toReplicas(ctx, lab, harness.Resume)); err != nil {
			return nil, err
		}
		fmt.Printf(" (%.2f s, %.2f s)\n", s["create_100_seconds"].floor, s["delete_100_seconds"].floor)
		measured = append(measured, s)
	}
	return measured, nil
}
