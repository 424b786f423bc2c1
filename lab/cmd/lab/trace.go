package main

import (
	"context"
	"fmt"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/lab/launcher"
	"github.com/machine-controller-fleet/machine-controller-fleet/lab/traces"
)

// Bounds on waiting for spans.
const (
	tracePatience = 30 * time.Second
	traceInterval = time.Second
)

// trace prints the life of a machine as a tree, and where to see it in Jaeger's own pages. With a replica it waits until that is the last
// owner of the machine.
func (c *invocation) trace(ctx context.Context, owner string) error {
	url, err := launcher.Jaeger(c.folder())
	if err != nil {
		return err
	}
	jaeger := traces.Jaeger{URL: url}
	life, err := jaeger.Life(ctx, c.args[0])
	if owner != "" {
		life, err = awaitOwner(ctx, jaeger, c.args[0], owner)
	}
	if err != nil {
		return err
	}
	life.Print(c.out)
	fmt.Fprintf(c.out, "\nIn Jaeger: %s\n", jaeger.SearchLink(life.Name))
	return nil
}

// awaitOwner reads the life of a machine until a replica is its last owner.
func awaitOwner(ctx context.Context, jaeger traces.Jaeger, machine, owner string) (traces.Life, error) {
	ctx, cancel := context.WithTimeout(ctx, tracePatience)
	defer cancel()
	ticker := time.NewTicker(traceInterval)
	defer ticker.Stop()
	for {
		life, err := jaeger.Life(ctx, machine)
		if err == nil {
			last := life.Tenures[len(life.Tenures)-1]
			if last.Replica == owner {
				return life, nil
			}
			err = fmt.Errorf("the life of machine %s: expected its last owner to be %s, got %s", machine, owner, last.Replica)
		}
		select {
		case <-ctx.Done():
			return life, err
		case <-ticker.C:
		}
	}
}
