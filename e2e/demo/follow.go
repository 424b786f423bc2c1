package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// follower keeps a journal up to date.
type follower struct {
	mu      sync.Mutex
	journal *journal
	end     func()
}

// follow watches the Leases of a lab's fleet until stop, or until ctx ends. Polling is not enough:
// most slots move in less time than the poll interval.
func follow(ctx context.Context, lab *harness.Lab) (*follower, error) {
	factory := informers.NewSharedInformerFactoryWithOptions(lab.Control, 0,
		informers.WithNamespace(harness.FleetNamespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = v1alpha1.LabelFleet + "=" + harness.FleetName }))
	ctx, cancel := context.WithCancel(ctx)
	f := &follower{journal: newJournal(), end: func() {
		cancel()
		factory.Shutdown()
	}}
	leases := factory.Coordination().V1().Leases().Informer()
	if _, err := leases.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { f.see(obj) },
		UpdateFunc: func(_, obj any) { f.see(obj) },
	}); err != nil {
		cancel()
		return nil, fmt.Errorf("watch the fleet's Leases: %w", err)
	}
	factory.StartWithContext(ctx)
	return f, nil
}

// stop ends it. A nil follower was not started.
func (f *follower) stop() {
	if f != nil {
		f.end()
	}
}

func (f *follower) see(obj any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if lease, ok := obj.(*coordinationv1.Lease); ok {
		f.journal.see(lease, time.Now())
	}
}

// do records that the fleet is changed now.
func (f *follower) do() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.journal.deed = time.Now()
}

// fleet returns the replicas with their slots.
func (f *follower) fleet(machines []machine) fleet {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.journal.fleet(machines)
}

// holdings returns who held the slots since it was started.
func (f *follower) holdings() []holding {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.journal.held)
}

// settled returns the moves that were not returned before, once no slot has moved for some time.
func (f *follower) settled(quiet time.Duration) []move {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.journal.settled(time.Now(), quiet)
}
