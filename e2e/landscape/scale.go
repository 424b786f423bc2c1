package main

import (
	"context"
	"fmt"
	"time"
)

// measureScaling scales the fleet from few replicas to most and back, while machines of all
// clusters are created, deleted and replaced, and measures for how long each target cluster was not
// served.
func (l *landscape) measureScaling(ctx context.Context) error {
	few := max(l.o.replicas-1, 1)
	g, err := l.observeGaps(ctx)
	if err != nil {
		return err
	}
	if err := l.lab.Scale(ctx, few); err != nil {
		return err
	}
	if err := g.settled(ctx, few); err != nil {
		return err
	}
	if _, _, err := g.done(ctx); err != nil {
		return err
	}
	load := l.startLoad(ctx, l.names(), l.o.interval)
	fmt.Print("\n| replicas, under load | target clusters that moved | each not served for | its slot | settled after |\n")
	fmt.Print("|---|---|---|---|---|\n")
	for _, to := range []struct {
		name     string
		replicas int
	}{{"scale_up", l.o.most}, {"scale_down", few}} {
		if err := l.scaleTo(ctx, to.name, to.replicas); err != nil {
			return err
		}
	}
	if err := load.stop(ctx); err != nil {
		return err
	}
	fmt.Printf("\n%d changes of clusters meanwhile, all of which have the desired machines in the end\n", load.changes)
	if err := l.lab.Scale(ctx, l.o.replicas); err != nil {
		return err
	}
	if err := l.lab.WaitAtRest(ctx); err != nil {
		return err
	}
	twice, err := l.createdTwice(ctx)
	fmt.Printf("VMs created twice: %d\n", twice)
	return err
}

func (l *landscape) scaleTo(ctx context.Context, name string, replicas int) error {
	g, err := l.observeGaps(ctx)
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := l.lab.Scale(ctx, replicas); err != nil {
		return err
	}
	if err := g.settled(ctx, replicas); err != nil {
		return err
	}
	settled := g.changed.Sub(begun)
	took, slots, err := g.done(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("| → %d | %d | %s | %s | %.1f s |\n", replicas, len(took), took, slots, settled.Seconds())
	l.rows.addDurations(name+"_gap", took)
	l.rows.addDurations(name+"_slot_gap", slots)
	l.rows.add(name+"_moves", float64(len(took)), "targets")
	l.rows.add(name+"_settled_seconds", settled.Seconds(), "s")
	return nil
}
