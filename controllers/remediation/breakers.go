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

// spacing is the least time between two counts. Machines change one after the other, and one count tells of many.
const spacing = time.Second

// Breakers counts the machines of this process, tells and hears what others have counted, and knows where replacement is
// halted. It is safe for concurrent use.
type Breakers struct {
	cfg  Config
	tree *tree
	// changed has the roots of a namespace looked at; with "" those of all namespaces.
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

// Report returns what there is to tell the other replicas; ok is false before anything was counted. It returns at once, and
// has everything counted anew, so that nothing is missed for long.
func (h *Breakers) Report() (text string, ok bool) {
	h.recount()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.said, h.said != ""
}

// Receive takes in what the replicas tell, by their names, this one among them, and which of them holds each slot; "" is
// nobody. It returns at once.
func (h *Breakers) Receive(texts map[string]string, holders []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if maps.Equal(texts, h.texts) && slices.Equal(holders, h.holders) {
		return
	}
	h.texts, h.holders = texts, holders
	h.recount()
}

// Snapshot returns where replacement is halted.
func (h *Breakers) Snapshot() disruption.Snapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.standing
}

// remember takes in that a root's status says, for a reason, that its replacement is halted; "" says that it is not.
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

// announce has the roots looked at for which two standings differ.
func (h *Breakers) announce(before, after disruption.Snapshot) {
	for _, namespace := range concerned(before, after) {
		h.changed(namespace)
	}
}

// concerned returns the namespaces for whose roots two standings differ; only "" when it may be any of them. A tenant can have scopes
// halted in his own namespace, again and again, and that is no reason to look at the roots of others.
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

// recount has everything counted soon.
func (h *Breakers) recount() {
	select {
	case h.dirty <- struct{}{}:
	default:
	}
}

// run counts whenever something has changed, or has lasted long enough, until ctx ends.
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

// count counts our own machines, adds what others have told, and notes what follows. It returns when to do so again if
// nothing changes.
func (h *Breakers) count(ctx context.Context) (again time.Time) {
	h.mu.Lock()
	texts, holders := h.texts, h.holders
	h.mu.Unlock()
	if holders == nil {
		return time.Time{} // nobody has said which slots there are
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

// own counts the machines of the slots that we hold and whose objects are all here.
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

// log says what has changed, for those who look for the reason of what happened.
func log(ctx context.Context, before, after disruption.Snapshot) {
	for scope, n := range after.Open {
		if _, was := before.Open[scope]; !was {
			klog.FromContext(ctx).Info("Replacement is halted", "where", scope.String(), "ready", n.Ready, "notReady", n.NotReady)
		}
	}
	for scope, n := range before.Open {
		if _, is := after.Open[scope]; !is {
			klog.FromContext(ctx).Info("Replacement goes on", "where", scope.String(), "ready", n.Ready, "notReady", n.NotReady)
		}
	}
}
