package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

const (
	// interval of polling the lab.
	interval = 200 * time.Millisecond
	// quiet is how long no slot has moved when moves are printed, so that simultaneous ones are
	// printed together.
	quiet = 500 * time.Millisecond
)

// demo is one run.
type demo struct {
	dir      string // of the lab
	replicas int
	keep     bool
	// clusters and light are the numbers of target clusters with a real and with a light API server,
	// as `lab up` has them.
	clusters, light int
	landscape       landscape
	tracing         bool
	tools           tools
	screen          *screen
	began           time.Time
	lab             *harness.Lab // nil before it is up
	leases          *follower
	timings         []timing
	samples         []sample
	// drawTo is the file for the picture of the run; "" for none.
	drawTo string
	// followed is a machine whose slot was taken over, for the step that shows its life.
	followed string
}

// step is a part of the run.
type step struct {
	title string
	do    func(context.Context) error
}

func (d *demo) steps() []step {
	if d.isLandscape() {
		return d.landscapeSteps()
	}
	steps := []step{
		{"Start a lab", d.startLab},
		{"Distribute the slots", d.shareTheWork},
		{"Create machines", d.createMachines},
		{"Scale up", d.scaleUp},
		{"Run pods on them", d.runPods},
		{"Configure some in place", d.configureMachines},
	}
	if d.keep {
		return steps
	}
	steps = append(steps,
		step{"Kill a replica that is restarted", d.killAndComeBack},
		step{"Add two replicas", d.addReplicas},
		step{"Remove one", d.removeReplica},
		step{"Kill one for good", d.loseReplica},
	)
	if d.tracing {
		steps = append(steps, step{"Stop a replica, and read a machine's life in the traces", d.showLife})
	}
	return append(steps,
		step{"Scale down", d.scaleDown},
		step{"Delete all", d.deleteAll},
		step{"Check for leftovers", d.lookForRest},
	)
}

// play runs all steps. It returns the first error, or that of ctx.
func (d *demo) play(ctx context.Context) error {
	d.screen.print(d.screen.ink.bold("machine-controller-fleet") + ": MachineDeployments become VMs, and VMs become Nodes.")
	d.screen.print("Everything runs on this machine, in " + d.dir)
	defer func() { d.leases.stop() }()
	for i, s := range d.steps() {
		d.screen.title(i+1, s.title)
		start := time.Now()
		if err := bounded(ctx, s.do); err != nil {
			return err
		}
		d.timings = append(d.timings, timing{Name: s.title, Start: start, Took: time.Since(start)})
	}
	d.screen.print("")
	d.screen.print(summary(d.screen.ink, d.timings, time.Since(d.began))...)
	d.screen.print("")
	return d.draw()
}

// draw writes the picture of the run.
func (d *demo) draw() error {
	if d.drawTo == "" {
		return nil
	}
	picture := drawing{steps: d.timings, samples: d.samples, holdings: d.leases.holdings()}.svg()
	if err := os.WriteFile(d.drawTo, []byte(picture), 0o644); err != nil {
		return fmt.Errorf("write the picture: %w", err)
	}
	return nil
}

// bounded runs f, and fails where it hangs.
func bounded(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, harness.Standstill)
	defer cancel()
	err := do(ctx)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("given up after %s: %w", harness.Standstill, err)
	}
	return err
}

// kubectlCommand shows a command, runs it, and shows its answer.
func (d *demo) kubectlCommand(ctx context.Context, args ...string) error {
	d.screen.command("kubectl " + strings.Join(args, " "))
	output, err := d.tools.kubectl(ctx, args...)
	d.screen.quote(output)
	return err
}

// labCommand shows a command, and runs it while it waits for its effect.
func (d *demo) labCommand(ctx context.Context, g goal, args ...string) error {
	d.screen.command("lab " + strings.Join(args, " "))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d.leases.do()
	done := make(chan error, 1)
	go func() {
		err := d.tools.manage(ctx, args...)
		if err != nil {
			cancel(err)
		}
		done <- err
	}()
	err := d.wait(ctx, g)
	if err != nil {
		cancel(err)
	}
	return cmp.Or(err, <-done)
}

// wait shows the lab until the goal is reached.
func (d *demo) wait(ctx context.Context, g goal) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var now scene
	var silence error // The error of a lab that does not answer; briefly that is tolerated.
	for start := time.Now(); ; {
		p, err := d.observe(ctx)
		if err == nil {
			d.samples = append(d.samples, p.sample(time.Now()))
			var broken error
			now, broken = g.scene(p)
			now.elapsed = time.Since(start)
			d.reportMoves(p, now)
			d.screen.show(now)
			if broken != nil || now.outcome == reached {
				return broken
			}
		}
		if ctx.Err() == nil {
			silence = err
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return context.Cause(ctx)
			}
			now.outcome, now.elapsed = missed, time.Since(start)
			d.screen.show(now)
			return errors.Join(fmt.Errorf("only %s", now.progress), silence)
		case <-ticker.C:
		}
	}
}

// reportMoves prints the moves: after a short delay, and at the end of a wait in any case.
func (d *demo) reportMoves(p picture, now scene) {
	after := quiet
	if now.outcome != waiting {
		after = 0
	}
	var lines []string
	for _, story := range stories(d.leases.settled(after), p.Machines) {
		lines = append(lines, fmt.Sprintf("%s%7s  %s", margin, seconds(now.elapsed), story))
	}
	d.screen.log(lines...)
}
