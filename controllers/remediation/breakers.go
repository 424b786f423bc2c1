package remediation

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/disruption"
)

// spacing is the minimum time between two counts. Machines change one after the other, and one count covers many changes.
const spacing = time.Second

// Breakers counts the machines of this process, exchanges counts with other replicas, and determines which circuit breakers are
// open. It is safe for concurrent use.
type Breakers struct {
	cfg  Config
	tree *tree
	// changed enqueues the roots of a namespace; with "" those of all namespaces.
	changed func(namespace string)
	dirty   chan struct{}

	mu       sync.Mutex
	texts    map[string]string
	holders  []string
	said     string
	state    disruption.Breakers
	standing disruption.Snapshot
}

func newBreakers(cfg Config, t *tree) *Breakers {
	return &Breakers{cfg: cfg, tree: t, dirty: make(chan struct{}, 1)}
}

// Report returns the report for the other replicas; ok is false before the first count. It returns at once, and requests a new
// count, so that no change is missed for long.
func (h *Breakers) Report() (text string, ok bool) {
	h.recount()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.said, h.said != ""
}

// Receive stores the reports of the replicas, by their names, this one among them, and which of them holds each slot; "" means no
// replica. It returns at once.
func (h *Breakers) Receive(texts map[string]string, holders []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if maps.Equal(texts, h.texts) && slices.Equal(holders, h.holders) {
		return
	}
	h.texts, h.holders = texts, holders
	h.recount()
}

// Snapshot returns the open circuit breakers.
func (h *Breakers) Snapshot() disruption.Snapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.standing
}

// remember records that the status of a root has an open circuit breaker, with the given reason; "" means that it has none.
func (h *Breakers) remember(reason string, machines []disruption.Member) {
	if reason == "" {
		return
	}
	h.mu.Lock()
	before, news := h.standing, false
	for _, member := range machines {
		scope := member.Scope
		switch {
		case reason == v1alpha1.ReasonTargetNotReady:
			scope.Zone = ""
		case scope.Zone == "":
			continue
		}
		news = h.state.Remember(scope, member.Machine.Namespace) || news
	}
	h.standing = h.state.Snapshot()
	after := h.standing
	h.mu.Unlock()
	if news {
		h.recount()
		h.announce(before, after)
	}
}

// announce enqueues the roots that the difference between two snapshots affects.
func (h *Breakers) announce(before, after disruption.Snapshot) {
	for _, namespace := range concerned(before, after) {
		h.changed(namespace)
	}
}

// concerned returns the namespaces whose roots the difference between two snapshots affects; only "" if it may affect all. A tenant
// can open circuit breakers for its own namespace again and again, which must not enqueue the roots of other namespaces.
func concerned(before, after disruption.Snapshot) []string {
	if before.Complete != after.Complete {
		return []string{""}
	}
	namespaces := map[string]bool{}
	for _, pair := range [][2]disruption.Snapshot{{before, after}, {after, before}} {
		for scope := range pair[0].Open {
			if _, both := pair[1].Open[scope]; !both {
				namespaces[scope.Namespace] = true
			}
		}
	}
	if namespaces[""] {
		return []string{""}
	}
	return slices.Sorted(maps.Keys(namespaces))
}

// recount requests a count.
func (h *Breakers) recount() {
	select {
	case h.dirty <- struct{}{}:
	default:
	}
}

// run counts after each change, and when time may have changed the result, until ctx ends.
func (h *Breakers) run(ctx context.Context) {
	for {
		again := h.count(ctx)
		pause := h.cfg.Clock.NewTimer(spacing)
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C():
		}
		if !h.wait(ctx, again) {
			return
		}
	}
}

// wait waits until something has changed, or again has come; false means that ctx has ended.
func (h *Breakers) wait(ctx context.Context, again time.Time) bool {
	var due <-chan time.Time
	if !again.IsZero() {
		timer := h.cfg.Clock.NewTimer(max(again.Sub(h.cfg.Clock.Now()), 0))
		defer timer.Stop()
		due = timer.C()
	}
	select {
	case <-ctx.Done():
		return false
	case <-h.dirty:
	case <-due:
	}
	return true
}

// count counts the machines of this replica, adds the reports of others, and stores the result. It returns when to count again
// without a change.
func (h *Breakers) count(ctx context.Context) (again time.Time) {
	h.mu.Lock()
	texts, holders := h.texts, h.holders
	h.mu.Unlock()
	if holders == nil {
		return time.Time{} // the number of slots is not known yet
	}
	reported, own := disruption.ParseReports(texts, holders), h.own(len(holders))
	total, complete := disruption.Sum(own, reported)
	h.mu.Lock()
	changed, again := h.state.Step(h.cfg.Clock.Now(), h.cfg.Limits.Thresholds, total, complete)
	before := h.standing
	h.standing, h.said = h.state.Snapshot(), disruption.Report(h.cfg.Replica, own, reported, h.said)
	after := h.standing
	h.mu.Unlock()
	if changed {
		log(ctx, before, after)
		h.announce(before, after)
	}
	return again
}

// own counts the machines of the slots that this replica holds and whose objects are all cached.
func (h *Breakers) own(slots int) disruption.Own {
	own := disruption.Own{}
	for slot := range slots {
		if h.cfg.Holds(slot) {
			own[slot] = disruption.Counts{}
		}
	}
	for _, m := range h.tree.view.Machines.All() {
		slot, labelled := h.cfg.SlotOf(m.Labels)
		counts, ours := own[slot]
		if !labelled || !ours {
			continue
		}
		if n := h.tree.count(m, h.cfg.Clock.Now()); n != (disruption.Count{}) {
			counts.Add(h.tree.scopeOf(m), m.Namespace, n)
		}
	}
	return own
}

// log logs the circuit breakers that were opened and closed.
func log(ctx context.Context, before, after disruption.Snapshot) {
	for scope, n := range after.Open {
		if _, was := before.Open[scope]; !was {
			klog.FromContext(ctx).Info("Opened circuit breaker", "scope", scope.String(), "ready", n.Ready, "notReady", n.NotReady)
		}
	}
	for scope, n := range before.Open {
		if _, is := after.Open[scope]; !is {
			klog.FromContext(ctx).Info("Closed circuit breaker", "scope", scope.String(), "ready", n.Ready, "notReady", n.NotReady)
		}
	}
}
