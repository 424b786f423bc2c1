package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/chaos/check"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
)

// move is a slot that has moved to another session.
type move struct {
	slot    int
	session string
	since   time.Time // when another replica was assigned, or the slot lost its holder
}

// gaps observes how slots move, and how long they are not served: from when another replica is
// assigned to a slot until that has finished its first pass over an object of it, and watches the
// Nodes of the target clusters of it.
type gaps struct {
	l      *landscape
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu      sync.Mutex
	err     error
	changed time.Time          // when a slot has last changed hands, or another replica was assigned
	moving  map[int]time.Time  // since when, by slot
	holders map[int]string     // the last session that held a slot
	moves   []move             // those that have ended
	served  map[move]time.Time // by slot and session
}

// observeGaps observes until ctx ends, or done is called.
func (l *landscape) observeGaps(ctx context.Context) (*gaps, error) {
	ctx, cancel := context.WithCancel(ctx)
	g := &gaps{
		l: l, cancel: cancel, changed: time.Now(), moving: map[int]time.Time{}, holders: map[int]string{}, served: map[move]time.Time{},
	}
	api, selected := l.lab.Control.CoordinationV1().Leases(harness.FleetNamespace), v1alpha1.LabelLease+"="+v1alpha1.LeaseOfSlot
	list, err := api.List(ctx, metav1.ListOptions{LabelSelector: selected})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("list the Leases of slots: %w", err)
	}
	for i := range list.Items {
		g.see(&list.Items[i])
	}
	watcher, err := harness.Watch(ctx, list.ResourceVersion, api.Watch)
	if err != nil {
		cancel()
		return nil, err
	}
	g.ended.Go(func() {
		defer watcher.Stop()
		for event := range watcher.ResultChan() {
			if lease, ok := event.Object.(*coordinationv1.Lease); ok && lease.Labels[v1alpha1.LabelLease] == v1alpha1.LeaseOfSlot {
				g.see(lease)
			}
		}
	})
	g.ended.Go(func() { g.poll(ctx) })
	return g, nil
}

// see records a Lease of a slot.
func (g *gaps) see(lease *coordinationv1.Lease) {
	slot, is := member.SlotOfLease(harness.FleetName, lease.Name, g.l.lab.SlotCount)
	if !is {
		return
	}
	session, now := member.Holder(lease), time.Now()
	replica, _, _ := strings.Cut(session, "_")
	g.mu.Lock()
	defer g.mu.Unlock()
	since, moves := g.moving[slot]
	switch arrived := replica == lease.Annotations[v1alpha1.AnnotationAssignedReplica]; {
	case !arrived && !moves:
		g.moving[slot], g.changed = now, now
	case arrived && moves:
		delete(g.moving, slot)
		g.changed = now
		if session != g.holders[slot] {
			g.moves = append(g.moves, move{slot, session, since})
		}
	}
	if session != "" {
		g.holders[slot] = session
	}
}

// pollServed is how often replicas are asked when slots were served: the time is theirs.
const pollServed = 250 * time.Millisecond

// poll records when slots were served.
func (g *gaps) poll(ctx context.Context) {
	ticker := time.NewTicker(pollServed)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		views, err := g.l.lab.EverySlots(ctx)
		g.mu.Lock()
		if err != nil && ctx.Err() == nil {
			g.err = err
		}
		for _, view := range views {
			for _, here := range view.Here {
				if here.Open && !here.Served.IsZero() {
					g.served[move{slot: here.Slot, session: view.Session}] = here.Served
				}
			}
		}
		g.mu.Unlock()
	}
}

// quiet is how long no slot may have moved when the moves are over.
const quiet = 10 * time.Second

// settled waits until so many replicas share the slots, and no slot moves.
func (g *gaps) settled(ctx context.Context, replicas int) error {
	return harness.EventuallyEvery(ctx, pollServed, fmt.Sprintf("%d replicas share the slots", replicas), func(context.Context) error {
		g.mu.Lock()
		defer g.mu.Unlock()
		share := map[string]int{}
		for _, session := range g.holders {
			share[session]++
		}
		switch {
		case len(share) != replicas || len(g.moving) > 0:
			return fmt.Errorf("%d slots move, and replicas have %v", len(g.moving), share)
		case time.Since(g.changed) < quiet:
			return errors.New("a slot has moved")
		}
		return g.err
	})
}

// done ends the observation, and returns the gaps of all target clusters whose slots have moved,
// and those of their slots alone, without the time until the target is watched.
// Errors: a target cluster that was not served after a move.
func (g *gaps) done(ctx context.Context) (took, slots durations, err error) {
	g.cancel()
	g.ended.Wait()
	began, err := g.l.nodeWatches(ctx)
	if err != nil {
		return nil, nil, err
	}
	spread, err := assignment.NewSpread(g.l.lab.SlotCount, assignment.ByNamespace)
	if err != nil {
		return nil, nil, err
	}
	bySlot := map[int][]string{}
	for _, namespace := range g.l.names() {
		slot := spread.Of(namespace, "")
		bySlot[slot] = append(bySlot[slot], namespace)
	}
	for i, one := range g.moves {
		for _, namespace := range bySlot[one.slot] {
			served := g.served[move{slot: one.slot, session: one.session}]
			all := began[watchOf{namespace, one.session}]
			watched := all.after(one.since)
			if len(all) > 0 && watched.IsZero() {
				watched = one.since // the replica had the namespace a moment ago, and the watch has stayed
			}
			if served.Before(one.since) || watched.IsZero() {
				if g.movedAgain(i) {
					continue // before it was served: the later move counts, from the first assignment on
				}
				return nil, nil, fmt.Errorf("%s: slot %d moved to %s, which has not served it (%s), or does not watch the Nodes (%s)",
					namespace, one.slot, one.session, served, watched)
			}
			slots = append(slots, served.Sub(one.since))
			if watched.After(served) {
				served = watched
			}
			took = append(took, served.Sub(one.since))
		}
	}
	return took, slots, nil
}

// movedAgain reports whether the slot of a move has moved on, which then counts from the same time.
func (g *gaps) movedAgain(i int) bool {
	for j := i + 1; j < len(g.moves); j++ {
		if g.moves[j].slot == g.moves[i].slot {
			g.moves[j].since = g.moves[i].since
			return true
		}
	}
	return false
}

// watchOf are the watches of the Nodes of a namespace's target cluster by a session.
type watchOf struct{ namespace, session string }

type times []time.Time

// after returns the first time after a given one; zero if there is none.
func (t times) after(since time.Time) (first time.Time) {
	for _, at := range t {
		if at.After(since) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// nodeWatches returns when watches of Nodes of target clusters were begun.
func (l *landscape) nodeWatches(ctx context.Context) (map[watchOf]times, error) {
	all := map[watchOf]times{}
	add := func(namespace, userAgent string, at time.Time) {
		if actor, known := check.ParseActor(userAgent); known {
			key := watchOf{namespace, actor.Session}
			all[key] = append(all[key], at)
		}
	}
	watches, err := l.lab.Watches(l.from)
	if err != nil {
		return nil, err
	}
	for _, r := range watches {
		if r.Cluster != "" && r.Resource == "nodes" {
			add(r.Cluster, r.UserAgent, r.At)
		}
	}
	if !l.members[len(l.members)-1].IsLight() {
		return all, nil
	}
	usage, err := l.lab.LightUsage(ctx)
	for cluster, users := range usage {
		for _, user := range users {
			for _, w := range user.NodeWatches {
				add(cluster, w.UserAgent, w.Begun)
			}
		}
	}
	return all, err
}
