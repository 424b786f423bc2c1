package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
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
		l.printUse("At rest", u)
	}
	return err
}

func (l *landscape) measureRoll(ctx context.Context) error {
	var took durations
	u, err := l.measure(ctx, func() (err error) {
		took, err = l.roll(ctx)
		return err
	})
	if err == nil {
		l.printUse("While all clusters roll", u)
		fmt.Println("\nrollout of a cluster:", took)
	}
	return err
}

// measureIsolation measures how long it takes to add a machine to each of the other clusters while
// one has a fault, each time right after the same without.
func (l *landscape) measureIsolation(ctx context.Context) error {
	sick := l.members[len(l.members)-1]
	others := slices.DeleteFunc(l.names(), func(name string) bool { return name == sick.Name })
	fmt.Printf("\nTo add a machine to each of %d target clusters while another (%s) has a fault:\n\n", len(others), sick.Name)
	fmt.Print("| fault | time until it runs without | with | ratio of p50 | of p99 |\n|---|---|---|---|---|\n")
	for _, c := range []struct {
		name string
		set  func() error
	}{
		{"none", func() error { return nil }},
		{"the API server hangs", func() error { return l.fault(ctx, sick, harness.LightFault{DelayMillis: -1}) }},
		{"the API server answers after 60 s", func() error { return l.fault(ctx, sick, harness.LightFault{DelayMillis: 60_000}) }},
		{"the API server throttles", func() error { return l.fault(ctx, sick, harness.LightFault{Throttled: true}) }},
		{"the link is cut", func() error { return l.lab.SetFault(ctx, sick.Name, "server", harness.Cut("")) }},
	} {
		without, err := l.grow(ctx, others, spacing, l.size+1)
		if err != nil {
			return err
		}
		if err := l.recover(ctx, sick, others); err != nil {
			return err
		}
		if err := c.set(); err != nil {
			return err
		}
		if err := l.patch(ctx, sick.Name, fmt.Sprintf(`{"spec":{"replicas":%d}}`, 2*l.o.machines)); err != nil { // it has work
			return err
		}
		took, err := l.grow(ctx, others, spacing, l.size+1)
		if err != nil {
			return err
		}
		fmt.Printf("| %s | %s | %s | %.2f | %.2f |\n", c.name, without, took, float64(took.percentile(50))/float64(without.percentile(50)),
			float64(took.percentile(99))/float64(without.percentile(99)))
		if err := l.recover(ctx, sick, others); err != nil {
			return err
		}
	}
	return nil
}

// recover ends the fault of a cluster, and removes the machines that were added.
func (l *landscape) recover(ctx context.Context, sick harness.Member, others []string) error {
	if err := l.fault(ctx, sick, harness.LightFault{}); err != nil {
		return err
	}
	if err := l.lab.SetFault(ctx, sick.Name, "server", harness.Fault{}); err != nil {
		return err
	}
	if _, err := l.grow(ctx, others, 0, l.size); err != nil {
		return err
	}
	if err := l.patch(ctx, sick.Name, fmt.Sprintf(`{"spec":{"replicas":%d}}`, l.size)); err != nil {
		return err
	}
	return l.lab.Running(ctx, sick.Name, l.size)
}

// fault sets the fault of a light cluster; a real one has no such faults.
func (l *landscape) fault(ctx context.Context, of harness.Member, fault harness.LightFault) error {
	if !of.IsLight() {
		return nil
	}
	return l.lab.SetLightFault(ctx, of.Name, fault)
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
	grown, err := l.grow(ctx, l.names(), spacing, l.size+1)
	if err != nil {
		return err
	}
	if err := <-rotated; err != nil {
		return err
	}
	fmt.Printf("\nAll credentials rotated in %.1f s; machines added meanwhile, until they run: %s\n", took.Seconds(), grown)
	if _, err := l.grow(ctx, l.names(), 0, l.size); err != nil {
		return err
	}
	return l.printUsers(ctx)
}

// printUsers prints how many requests light clusters get by credentials that were replaced.
func (l *landscape) printUsers(ctx context.Context) error {
	if !l.members[len(l.members)-1].IsLight() {
		return nil
	}
	before, err := l.lab.LightUsage(ctx)
	if err != nil {
		return err
	}
	if _, err := l.roll(ctx); err != nil {
		return err
	}
	after, err := l.lab.LightUsage(ctx)
	old, current := int64(0), int64(0)
	for cluster, users := range after {
		for user, u := range users {
			switch n := u.Requests - before[cluster][user].Requests; {
			case !strings.HasPrefix(user, "fleet-"):
			case strings.HasSuffix(user, cluster+"-1"):
				old += n
			default:
				current += n
			}
		}
	}
	fmt.Printf("Requests to light clusters in the rollout after that: %d by the new credentials, %d by the old ones.\n", current, old)
	return err
}

// measureScaling adds a machine to each cluster while the number of replicas changes.
func (l *landscape) measureScaling(ctx context.Context) error {
	fmt.Print("\n| replicas | to add a machine to each cluster meanwhile, until it runs |\n|---|---|\n")
	for i, to := range []int{l.o.replicas, l.o.most, l.o.replicas} {
		what := fmt.Sprint("→ ", to)
		done := make(chan error, 1)
		if i == 0 {
			what = fmt.Sprint("stay ", to)
			done <- nil
		} else {
			go func() { done <- l.lab.Scale(ctx, to) }()
		}
		took, err := l.grow(ctx, l.names(), spacing, l.size+1)
		if err != nil {
			return err
		}
		fmt.Printf("| %s | %s |\n", what, took)
		if err := <-done; err != nil {
			return err
		}
		if _, err := l.grow(ctx, l.names(), 0, l.size); err != nil {
			return err
		}
		if err := l.lab.WaitAtRest(ctx); err != nil {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
