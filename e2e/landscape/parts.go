package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// spacing is the time between two changes, where a change is to be measured next to others and
// not in a queue with them.
const spacing = 100 * time.Millisecond

func (l *landscape) measureRest(ctx context.Context) error {
	if err := pause(ctx, l.o.warm); err != nil {
		return err
	}
	u, err := l.measure(ctx, func() error { return pause(ctx, l.o.rest) })
	if err == nil {
		l.printUse("rest", "At rest", u)
		l.rows.add("targets", float64(len(l.members)), "clusters")
		l.rows.add("machines", float64(l.machines()), "machines")
	}
	return err
}

func (l *landscape) measureRoll(ctx context.Context) error {
	var took durations
	u, err := l.measure(ctx, func() (err error) {
		took, err = l.change(ctx, l.names(), 0, rolled)
		return err
	})
	if err == nil {
		l.printUse("roll", "While all clusters roll", u)
		fmt.Println("\nrollout of a cluster:", took)
		l.rows.addDurations("roll_cluster", took)
		l.rows.add("roll_all_seconds", u.took.Seconds(), "s")
	}
	return err
}

// measureRotation rotates all credentials while a machine is added to each cluster.
func (l *landscape) measureRotation(ctx context.Context) error {
	rotated := make(chan error, 1)
	start := time.Now()
	var took time.Duration
	go func() {
		err := l.lab.Rotate(ctx, "")
		took = time.Since(start)
		rotated <- err
	}()
	grown, err := l.change(ctx, l.names(), l.o.interval, bigger)
	if err != nil {
		return err
	}
	if err := <-rotated; err != nil {
		return err
	}
	fmt.Printf("\nAll credentials rotated in %.1f s; machines added meanwhile, until they run: %s\n", took.Seconds(), grown)
	l.rows.add("rotate_all_seconds", took.Seconds(), "s")
	l.rows.addDurations("rotate_add", grown)
	if _, err := l.change(ctx, l.names(), 0, smaller); err != nil {
		return err
	}
	return l.countUsers(ctx)
}

// countUsers prints how many requests light clusters get by credentials that were replaced.
func (l *landscape) countUsers(ctx context.Context) error {
	if !l.members[len(l.members)-1].IsLight() {
		return nil
	}
	before, err := l.lab.LightUsage(ctx)
	if err != nil {
		return err
	}
	if _, err := l.change(ctx, l.names(), 0, bigger); err != nil {
		return err
	}
	after, err := l.lab.LightUsage(ctx)
	if err != nil {
		return err
	}
	old, current := int64(0), int64(0)
	for cluster, users := range after {
		newest := 0 // credentials are numbered
		number := func(user string) (n int, is bool) {
			_, err := fmt.Sscanf(strings.TrimPrefix(user, "fleet-of-"+cluster+"-"), "%d", &n)
			return n, err == nil && strings.HasPrefix(user, "fleet-of-")
		}
		for user := range users {
			if n, is := number(user); is {
				newest = max(newest, n)
			}
		}
		for user, u := range users {
			switch n, is := number(user); {
			case !is:
			case n == newest:
				current += u.Requests - before[cluster][user].Requests
			default:
				old += u.Requests - before[cluster][user].Requests
			}
		}
	}
	fmt.Printf("Requests to light clusters while a machine was added to each after that: %d by the new credentials, %d by the old ones.\n",
		current, old)
	l.rows.add("rotate_old_requests", float64(old), "requests")
	_, err = l.change(ctx, l.names(), 0, smaller)
	return err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
