package main

import (
	"context"
	"errors"
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

// trace prints the life of a machine as a tree once it has had that many owners, and where to see it in Jaeger's own pages.
func (c *invocation) trace(ctx context.Context, owners int) error {
	url, err := launcher.Jaeger(c.folder())
	if err != nil {
		return err
	}
	jaeger := traces.Jaeger{URL: url}
	life, err := awaitLife(ctx, jaeger, c.args[0], owners)
	if err != nil {
		return err
	}
	life.Print(c.out)
	fmt.Fprintf(c.out, "\nIn Jaeger: %s\n", jaeger.SearchLink(life.Name))
	return nil
}

// awaitLife reads the life of a machine until it has had so many owners.
func awaitLife(ctx context.Context, jaeger traces.Jaeger, machine string, owners int) (traces.Life, error) {
	ctx, cancel := context.WithTimeout(ctx, tracePatience)
	defer cancel()
	ticker := time.NewTicker(traceInterval)
	defer ticker.Stop()
	for {
		life, err := jaeger.Life(ctx, machine)
		if err == nil && len(life.Tenures) >= owners {
			return life, nil
		}
		if err == nil {
			err = fmt.Errorf("the life of machine %s: expected %d owners, found %d; another one may follow", machine, owners, len(life.Tenures))
		}
		var none *traces.NoneError
		if owners <= 1 && errors.As(err, &none) {
			return life, err // it may never be sampled
		}
		select {
		case <-ctx.Done():
			return life, err
		case <-ticker.C:
		}
	}
}
