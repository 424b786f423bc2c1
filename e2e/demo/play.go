package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

const (
	// patience bounds each step. None takes half a minute, but the machine may be busy.
	patience = 3 * time.Minute
	// interval of the looks at the lab.
	interval = 200 * time.Millisecond
)

// demo is one performance.
type demo struct {
	dir     string // of the lab
	keep    bool
	kubectl kubectl
	screen  *screen
	began   time.Time
	lab     *harness.Lab // nil before it is up
	timings []timing
}

// step is a part of the play.
type step struct {
	title string
	do    func(context.Context) error
}

func (d *demo) steps() []step {
	steps := []step{
		{"Start a lab", d.startLab},
		{"Ask for machines", d.askForMachines},
		{"Ask for more", d.askForMore},
		{"Run pods on them", d.runPods},
	}
	if d.keep {
		return steps
	}
	return append(steps,
		step{"Ask for fewer", d.askForFewer},
		step{"Ask for none", d.askForNone},
		step{"Look for what is left", d.lookForRest},
	)
}

// play plays all steps. It returns what went wrong, or the end of ctx.
func (d *demo) play(ctx context.Context) error {
	d.screen.say(d.screen.ink.bold("machine-controller-fleet") + ": MachineDeployments become VMs, and VMs become Nodes.")
	d.screen.say("Everything happens on this machine, in " + d.dir)
	for i, s := range d.steps() {
		d.screen.title(i+1, s.title)
		start := time.Now()
		if err := bounded(ctx, s.do); err != nil {
			return err
		}
		d.timings = append(d.timings, timing{Name: s.title, Took: time.Since(start)})
	}
	d.screen.say("")
	d.screen.say(summary(d.screen.ink, d.timings, time.Since(d.began))...)
	d.screen.say("")
	return nil
}

// bounded does something, for as long as there is patience.
func bounded(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := do(ctx)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("given up after %s: %w", patience, err)
	}
	return err
}

// kubectlCommand shows a command, runs it, and shows its answer.
func (d *demo) kubectlCommand(ctx context.Context, args ...string) error {
	d.screen.command("kubectl " + strings.Join(args, " "))
	output, err := d.kubectl.run(ctx, args...)
	d.screen.quote(output)
	return err
}

// wait shows the lab until the goal is reached.
func (d *demo) wait(ctx context.Context, g goal) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var now scene
	var silence error // Why the lab does not answer. For a moment that is no reason to give up.
	for start := time.Now(); ; {
		p, err := observe(ctx, d.lab)
		if err == nil {
			now = scene{progress: g.reach(p), facts: g.facts(p), elapsed: time.Since(start)}
			if now.progress.Reached {
				now.outcome = reached
			}
			d.screen.show(now)
		}
		if now.outcome == reached {
			return nil
		}
		if ctx.Err() == nil {
			silence = err
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err()
			}
			now.outcome, now.elapsed = missed, time.Since(start)
			d.screen.show(now)
			return errors.Join(fmt.Errorf("only %s", now.progress), silence)
		case <-ticker.C:
		}
	}
}
