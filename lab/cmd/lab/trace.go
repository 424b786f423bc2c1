package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/lab/launcher"
	"github.com/machine-controller-fleet/machine-controller-fleet/lab/traces"
)

// Bounds on waiting for spans.
const (
	tracePatience = 30 * time.Second
	traceInterval = time.Second
)

// trace prints the life of a machine as a tree, and where to see it in Jaeger's own pages. With an epoch it waits until the last owner of
// the machine holds its slot in that epoch or a later one.
func (c *invocation) trace(ctx context.Context, epoch int64) error {
	url, err := launcher.Jaeger(c.folder())
	if err != nil {
		return err
	}
	jaeger := traces.Jaeger{URL: url}
	life, err := jaeger.Life(ctx, c.args[0])
	if epoch > 0 {
		life, err = awaitEpoch(ctx, jaeger, c.args[0], epoch)
	}
	if err != nil {
		return err
	}
	life.Print(c.out)
	fmt.Fprintf(c.out, "\nIn Jaeger: %s\n", jaeger.SearchLink(life.Name))
	return nil
}

// awaitEpoch reads the life of a machine until its last owner holds its slot in an epoch or a later one.
func awaitEpoch(ctx context.Context, jaeger traces.Jaeger, machine string, epoch int64) (traces.Life, error) {
	ctx, cancel := context.WithTimeout(ctx, tracePatience)
	defer cancel()
	ticker := time.NewTicker(traceInterval)
	defer ticker.Stop()
	for {
		life, err := jaeger.Life(ctx, machine)
		if err == nil {
			last := life.Tenures[len(life.Tenures)-1]
			if reached, _ := strconv.ParseInt(last.Epoch, 10, 64); reached >= epoch {
				return life, nil
			}
			err = fmt.Errorf("the life of machine %s: expected its last owner to hold slot %s in epoch %d or a later one, got epoch %q of %s",
				machine, last.Slot, epoch, last.Epoch, last.Replica)
		}
		select {
		case <-ctx.Done():
			return life, err
		case <-ticker.C:
		}
	}
}
