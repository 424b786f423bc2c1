package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// longSamples is how often a long run is sampled, and rotations how often its credentials are
// rotated.
const longSamples, rotations = 24, 4

// measureLong has machines added, removed, replaced and fail, and credentials rotated, for --long.
// It prints what the fleet uses, and by how much that grows.
func (l *landscape) measureLong(ctx context.Context) error {
	load := l.startLoad(ctx, l.names(), l.o.interval)
	columns := []struct {
		name, unit string
		value      func(use) float64
	}{
		{"rss_mb", "MB", func(u use) float64 { return u.memory / 1e6 }},
		{"goroutines", "goroutines", func(u use) float64 { return u.goroutines }},
		{"control_watches", "watches", func(u use) float64 { return float64(u.controlWatches) }},
		{"target_watches", "watches", func(u use) float64 { return float64(u.targetWatches) }},
		{"heap_mb", "MB", func(u use) float64 { return u.heap / 1e6 }},
		{"objects", "objects", func(u use) float64 { return float64(u.objects) }},
		{"events", "Events", func(u use) float64 { return float64(u.events) }},
	}
	values, hoursOf := make([][]float64, len(columns)), []float64(nil)
	fmt.Printf("\n| minutes |")
	for _, c := range columns {
		fmt.Printf(" %s |", c.name)
	}
	fmt.Printf("\n|---|---|---|---|---|---|---|---|\n")
	begun := time.Now()
	for i := range longSamples {
		err := pause(ctx, l.o.long/longSamples)
		if err == nil {
			err = l.endVM(ctx)
		}
		if err == nil && i%(longSamples/rotations) == 0 {
			err = l.lab.Rotate(ctx, "")
		}
		u := use{}
		if err == nil {
			err = l.sampleLong(ctx, &u)
		}
		if err != nil {
			return errors.Join(err, load.stop(ctx))
		}
		fmt.Printf("| %.0f |", time.Since(begun).Minutes())
		for i, c := range columns {
			values[i] = append(values[i], c.value(u))
			fmt.Printf(" %.0f |", c.value(u))
		}
		fmt.Println()
		hoursOf = append(hoursOf, time.Since(begun).Hours())
	}
	if err := load.stop(ctx); err != nil {
		return err
	}
	fmt.Printf("\n%d changes of %d target clusters. Growth in the second half, in an hour:\n\n", load.changes, len(l.members))
	for i, c := range columns {
		half := len(hoursOf) / 2 // after the first, caches have their size
		slope, deviation := line(hoursOf[half:], values[i][half:])
		fmt.Printf("- %s: %+.1f, with a standard error of %.1f\n", c.name, slope, deviation)
		l.rows.add("long_"+c.name, values[i][len(values[i])-1], c.unit)
		l.rows.add("long_"+c.name+"_growth_per_hour", slope, c.unit)
	}
	return nil
}

// endVM has the VM of a machine end by itself.
func (l *landscape) endVM(ctx context.Context) error {
	vms, err := l.lab.Cloud.AllVMs(ctx)
	for _, vm := range vms {
		if vm.State == cloudapi.StateRunning {
			return errors.Join(err, l.lab.Cloud.Act(ctx, vm.ID, cloudapi.ActionDie))
		}
	}
	return err
}

func (l *landscape) sampleLong(ctx context.Context, u *use) (err error) {
	if u.goroutines, err = l.sum(ctx, "go_goroutines"); err != nil {
		return err
	}
	if u.heap, err = l.sum(ctx, "go_memstats_heap_alloc_bytes"); err != nil {
		return err
	}
	if err := errors.Join(l.weigh(ctx, u), l.countWatches(ctx, u)); err != nil {
		return err
	}
	one := metav1.ListOptions{Limit: 1}
	events, err := l.lab.Control.CoreV1().Events(metav1.NamespaceAll).List(ctx, one)
	if err != nil {
		return fmt.Errorf("count Events: %w", err)
	}
	u.events = countOf(len(events.Items), events.RemainingItemCount)
	leases, err := l.lab.Control.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, one)
	if err != nil {
		return fmt.Errorf("count Leases: %w", err)
	}
	secrets, err := l.lab.Control.CoreV1().Secrets(metav1.NamespaceAll).List(ctx, one)
	if err != nil {
		return fmt.Errorf("count Secrets: %w", err)
	}
	sets, err := l.lab.Machines.MachineV1alpha1().MachineSets(metav1.NamespaceAll).List(ctx, one)
	if err != nil {
		return fmt.Errorf("count MachineSets: %w", err)
	}
	u.objects = countOf(len(leases.Items), leases.RemainingItemCount) + countOf(len(secrets.Items), secrets.RemainingItemCount) +
		countOf(len(sets.Items), sets.RemainingItemCount)
	return nil
}

// countOf returns how many objects there are, by a page of a list.
func countOf(page int, rest *int64) int {
	if rest == nil {
		return page
	}
	return page + int(*rest)
}

// line fits a straight line to points, at least three, and returns its slope and the standard error
// of that.
func line(x, y []float64) (slope, deviation float64) {
	n := float64(len(x))
	var mx, my, sxx, sxy, rest float64
	for i := range x {
		mx, my = mx+x[i]/n, my+y[i]/n
	}
	for i := range x {
		sxx, sxy = sxx+(x[i]-mx)*(x[i]-mx), sxy+(x[i]-mx)*(y[i]-my)
	}
	slope = sxy / sxx
	for i := range x {
		d := y[i] - my - slope*(x[i]-mx)
		rest += d * d
	}
	return slope, math.Sqrt(rest / (n - 2) / sxx)
}
