package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated"
)

// load changes the machines of clusters at random: one more, one less, or all replaced.
type load struct {
	l       *landscape
	before  map[string]pool
	changes int
	cancel  context.CancelFunc
	ended   chan error
}

// startLoad starts a change of one of the clusters in each interval.
func (l *landscape) startLoad(ctx context.Context, namespaces []string, interval time.Duration) *load {
	ctx, cancel := context.WithCancel(ctx)
	d := &load{l: l, before: map[string]pool{}, cancel: cancel, ended: make(chan error, 1)}
	for _, namespace := range namespaces {
		d.before[namespace] = l.pool(namespace)
	}
	go func() { d.ended <- d.run(ctx, namespaces, interval) }()
	return d
}

func (d *load) run(ctx context.Context, namespaces []string, interval time.Duration) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same load each time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		namespace := namespaces[random.IntN(len(namespaces))]
		do := []func(pool) pool{bigger, smaller, rolled}[random.IntN(3)]
		if size := d.l.pool(namespace).size; size > d.before[namespace].size {
			do = smaller
		} else if size < d.before[namespace].size {
			do = bigger
		}
		if err := d.l.write(ctx, namespace, d.l.next(namespace, do)); err != nil && ctx.Err() == nil {
			return fmt.Errorf("change %s: %w", namespace, err)
		}
		d.changes++
	}
}

// stop ends the changes, and waits until all clusters have the machines that they had before.
func (d *load) stop(ctx context.Context) error {
	d.cancel()
	err := <-d.ended
	var namespaces []string
	for namespace := range d.before {
		namespaces = append(namespaces, namespace)
	}
	_, err2 := d.l.changeEach(ctx, namespaces, func(namespace string, now pool) pool { return pool{d.before[namespace].size, now.round} })
	return errors.Join(err, err2)
}

// changeEach is change at once, where what is next depends on the namespace.
func (l *landscape) changeEach(ctx context.Context, namespaces []string, next func(namespace string, now pool) pool) (durations, error) {
	for _, namespace := range namespaces {
		l.next(namespace, func(now pool) pool { return next(namespace, now) })
	}
	return l.change(ctx, namespaces, 0, the)
}

// createdTwice counts the machines for which the cloud has ever had more than one VM, and lists the
// VMs that have ended, by ID.
func (l *landscape) createdTwice(ctx context.Context) (twice int, err error) {
	vms, err := l.lab.Cloud.AllVMs(ctx)
	has := map[string]int{}
	for _, vm := range vms {
		if has[vm.Tags[simulated.TagMachineUID]]++; has[vm.Tags[simulated.TagMachineUID]] == 2 {
			twice++
		}
	}
	l.rows.add("vms_created_twice", float64(twice), "VMs")
	return twice, err
}
