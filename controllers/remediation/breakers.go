package remediation

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// spacing is the minimum time between two counts. Machines change one after the other, and one
// count covers many changes.
const spacing = time.Second

// Breakers counts the machines of this process, exchanges counts with other replicas, and
// determines which circuit breakers are open. It is safe for concurrent use.
type Breakers struct {
	cfg  Config
	tree *tree
	// changed enqueues the roots of a namespace; with "" those of all namespaces.
	changed func(namespace string)
	// inUse returns the thresholds of annotations by namespace.
	inUse func() map[string][]disruption.Thresholds
	dirty chan struct{}

	// reports were parsed for the last count, which is run's.
	reports disruption.Reports

	mu         sync.Mutex
	texts      map[string]string
	holders    []string
	lastReport string
	state      *disruption.AllBreakers
	standing   disruption.Snapshots
}

func newBreakers(cfg Config, t *tree) *Breakers {
	state := disruption.NewAllBreakers(cfg.Limits.Thresholds)
	return &Breakers{cfg: cfg, tree: t, dirty: make(chan struct{}, 1), state: state, standing: state.Snapshots()}
}

// Report returns the report for the other replicas; ok is false before the first count. It returns
// at once, and requests a new count, so that no change is missed for long.
func (b *Breakers) Report() (text string, ok bool) {
	b.recount()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lastReport, b.lastReport != ""
}

// Receive stores the reports of the replicas, by their names, this one among them, and which of
// them holds each slot; "" means no replica. It returns at once.
func (b *Breakers) Receive(texts map[string]string, holders []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if maps.Equal(texts, b.texts) && slices.Equal(holders, b.holders) {
		return
	}
	b.texts, b.holders = texts, holders
	b.recount()
}

// Snapshots returns the open circuit breakers.
func (b *Breakers) Snapshots() disruption.Snapshots {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.standing
}

// restore records that the status of a root with these thresholds has an open circuit breaker, with
// the given reason.
func (b *Breakers) restore(t disruption.Thresholds, reason string, machines []disruption.Member) {
	b.mu.Lock()
	before, isNew := b.standing, false
	for _, member := range machines {
		scope := member.Scope
		switch {
		case reason == v1alpha1.ReasonTargetNotReady:
			scope.Zone = ""
		case scope.Zone == "":
			continue
		}
		isNew = b.state.Restore(t, scope, member.Machine.Namespace) || isNew
	}
	b.standing = b.state.Snapshots()
	after := b.standing
	b.mu.Unlock()
	if isNew {
		b.recount()
		b.announce(before, after)
	}
}

// announce enqueues the roots that the difference between two snapshots affects.
func (b *Breakers) announce(before, after disruption.Snapshots) {
	for _, namespace := range concerned(before, after) {
		b.changed(namespace)
	}
}

// concerned returns the namespaces whose roots the difference between two snapshots affects; only
// "" if it may affect all. A tenant can open circuit breakers for its own namespace, and set
// thresholds there, again and again, which must not enqueue the roots of other namespaces.
func concerned(before, after disruption.Snapshots) []string {
	namespaces := map[string]bool{}
	for t := range union(before.Of, after.Of) {
		was, is := before.Of[t], after.Of[t]
		for namespace := range differ(was.Snapshot, is.Snapshot) {
			switch {
			case namespace != "":
				namespaces[namespace] = true
			case was.Namespaces == nil && is.Namespaces == nil:
				return []string{""}
			default:
				maps.Copy(namespaces, union(was.Namespaces, is.Namespaces))
			}
		}
	}
	return slices.Sorted(maps.Keys(namespaces))
}

// differ returns the namespaces in which two snapshots of the same thresholds differ; "" for all
// that use the thresholds.
func differ(before, after disruption.Snapshot) map[string]bool {
	namespaces := map[string]bool{}
	if before.Complete != after.Complete {
		namespaces[""] = true
	}
	for scope := range union(before.Open, after.Open) {
		_, was := before.Open[scope]
		if _, is := after.Open[scope]; is != was {
			namespaces[scope.Namespace] = true
		}
	}
	return namespaces
}

// union returns the keys of two maps.
func union[K comparable, V any](a, b map[K]V) map[K]bool {
	all := make(map[K]bool, len(a)+len(b))
	for _, keys := range []map[K]V{a, b} {
		for key := range keys {
			all[key] = true
		}
	}
	return all
}

// recount requests a count.
func (b *Breakers) recount() {
	select {
	case b.dirty <- struct{}{}:
	default:
	}
}

// run counts after each change, and when time may have changed the result, until ctx ends.
func (b *Breakers) run(ctx context.Context) {
	for ctx.Err() == nil {
		again := b.count(ctx)
		select {
		case <-ctx.Done():
		case <-b.cfg.Clock.After(spacing):
		}
		b.wait(ctx, again)
	}
}

// wait waits until something has changed, again has come, or ctx has ended.
func (b *Breakers) wait(ctx context.Context, again time.Time) {
	var due <-chan time.Time
	if !again.IsZero() {
		due = b.cfg.Clock.After(again.Sub(b.cfg.Clock.Now()))
	}
	select {
	case <-ctx.Done():
	case <-b.dirty:
	case <-due:
	}
}

// count counts the machines of this replica, adds the reports of others, and stores the result. It
// returns when to count again without a change.
func (b *Breakers) count(ctx context.Context) (again time.Time) {
	b.mu.Lock()
	texts, holders := b.texts, b.holders
	b.mu.Unlock()
	if holders == nil {
		return time.Time{} // the number of slots is not known yet
	}
	b.reports = b.reports.Next(texts, holders)
	reported, own := b.reports, b.own(len(holders))
	total, complete := disruption.Sum(own, reported)
	wanted := b.inUse()
	b.mu.Lock()
	b.state.Use(wanted)
	again = b.state.Step(b.cfg.Clock.Now(), total, complete)
	before := b.standing
	b.standing, b.lastReport = b.state.Snapshots(), disruption.Report(b.cfg.Replica, own, reported, b.lastReport)
	after := b.standing
	b.mu.Unlock()
	for t := range after.Of {
		log(ctx, t, before.Of[t].Snapshot, after.Of[t].Snapshot)
	}
	b.announce(before, after)
	return again
}

// own counts the machines of the slots that this replica holds and whose objects are all cached.
func (b *Breakers) own(slots int) disruption.Own {
	own := disruption.Own{}
	for slot := range slots {
		if b.cfg.Holds(slot) {
			own[slot] = disruption.Counts{}
		}
	}
	now := b.cfg.Clock.Now()
	for _, m := range b.tree.view.Machines.All() {
		slot, labelled := b.cfg.SlotOf(m.Labels)
		counts, ours := own[slot]
		if !labelled || !ours {
			continue
		}
		if scope, n := b.tree.count(m, now); n != (disruption.Count{}) {
			counts.Add(scope, m.Namespace, n)
		}
	}
	return own
}

// log logs the circuit breakers that were opened and closed, the one namespace where they apply, or
// "" for all, and the counts of the scope in all namespaces.
func log(ctx context.Context, t disruption.Thresholds, before, after disruption.Snapshot) {
	log := klog.FromContext(ctx).WithValues("thresholds", t.String())
	for scope, n := range after.Open {
		if _, was := before.Open[scope]; !was {
			log.Info("Opened circuit breaker", "scope", counted(scope).String(), telemetry.KeyNamespace, scope.Namespace, "ready", n.Ready,
				"notReady", n.NotReady)
		}
	}
	for scope, n := range before.Open {
		if _, is := after.Open[scope]; !is {
			log.Info("Closed circuit breaker", "scope", counted(scope).String(), telemetry.KeyNamespace, scope.Namespace, "ready", n.Ready,
				"notReady", n.NotReady)
		}
	}
}
