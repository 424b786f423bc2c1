package machinesim

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// seenWithin is the time within which every process has seen that deletions are held, or are held
// no longer.
const seenWithin = 5 * time.Second

// Paths on which a process can ignore a hold, to show that it is found.
const (
	ignoredLease        = "the annotation of the leader Lease is not read"
	ignoredNamespace    = "the annotation of the Namespace is not read"
	ignoredBySets       = "sets delete regardless"
	ignoredByIntents    = "sets delete what was recorded before"
	ignoredByHealth     = "unhealthy machines get disruptions regardless"
	ignoredAtStart      = "a new process deletes before it has read Namespaces"
	ignoredLeaseAtStart = "a new process deletes before it has read the leader Lease"
)

// holding simulates what people do with the annotation hold-deletions, and what processes do in
// spite of it. It has its own dice, so that it changes no other draw.
type holding struct {
	dice             *rand.Rand
	namespace, lease string // values of the annotation of the Namespace, and of the leader Lease
	version          int    // counts changes of these
	changed, since   time.Time
	ignored          string             // the path on which processes ignore it; "" for none
	ran              map[types.UID]bool // machines that have run
	read             int                // of the history of the machines
	wrong            string             // the first violation
	store            *store[*v1alpha1.Machine]
}

func (w *world) mayHold(seed uint64, ignored string) {
	w.holding = &holding{
		dice: newDice(seed * 6151), version: 1, changed: w.now, ignored: ignored, ran: map[types.UID]bool{}, store: w.machines,
	}
}

// hold sets the two annotations; "" for none.
func (w *world) hold(namespace, lease string) {
	h := w.holding
	w.note("hold by the Namespace %q, by the leader Lease %q", namespace, lease)
	switch held := namespace+lease != ""; {
	case !held:
		h.since = time.Time{}
	case h.since.IsZero():
		h.since = w.now
	}
	h.namespace, h.lease, h.changed = namespace, lease, w.now
	h.version++
}

// holdSomehow holds deletions by one of the annotations, or by both.
func (w *world) holdSomehow() {
	switch w.holding.dice.IntN(3) {
	case 0:
		w.hold("incident 7", "")
	case 1:
		w.hold("", "true")
	default:
		w.hold("true", "incident 7")
	}
}

// mustKeep reports whether deletions have been held for so long that every process has seen it.
func (w *world) mustKeep() bool {
	return w.holding != nil && !w.holding.since.IsZero() && w.now.Sub(w.holding.since) > seenWithin
}

// hasRun reports whether a machine has ever run.
func (h *holding) hasRun(machine types.UID) bool {
	for ; h.read < len(h.store.history); h.read++ {
		for _, m := range h.store.history[h.read] {
			if m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning {
				h.ran[m.UID] = true
			}
		}
	}
	return h.ran[machine]
}

// judge records what must not happen to a machine that has run, if it was requested while deletions
// were held.
func (w *world) judge(what string, machine types.UID, kept bool) {
	if kept && w.holding.hasRun(machine) && w.holding.wrong == "" {
		w.holding.wrong = fmt.Sprintf("at %s %s %s although deletions are held", w.now.Sub(start), what, machine)
		w.note("WRONG: %s", w.holding.wrong)
	}
}

// judgeDisruptions judges the disruptions that a process adds to a root.
func (w *world) judgeDisruptions(before, after []disruption.Disruption) {
	if !w.mustKeep() {
		return
	}
	known := map[types.UID]bool{}
	for _, d := range before {
		known[d.UID] = true
	}
	for _, d := range after {
		if !known[d.UID] {
			w.judge("a disruption is allowed for", d.UID, true)
		}
	}
}

var _ deletion.HoldNamespaces = (*sight)(nil)

// sight contains what a process has observed of the annotations, by two watches, each some time
// after they changed.
type sight struct {
	holds             *deletion.Holds
	namespace         string
	known             bool
	namespaces, lease watched
}

// watched is how much a watch has shown.
type watched struct {
	seen, announced int // versions
	due             time.Time
}

// Known is deletion.HoldNamespaces'.
func (s *sight) Known() bool { return s.known }

// Denied is deletion.HoldNamespaces'.
func (*sight) Denied() bool { return false }

// Annotation is deletion.HoldNamespaces'.
func (s *sight) Annotation(_, key string) (string, bool) {
	return s.namespace, key == v1alpha1.AnnotationHoldDeletions && s.namespace != ""
}

// OnChange is deletion.HoldNamespaces'. Passes are frequent here.
func (s *sight) OnChange(func(namespace string)) {}

// held reports whether deletions are held, as far as the process has seen. path is where it
// matters.
func (p *process) held(path string) bool {
	h := p.holding
	if h == nil {
		return false
	}
	s := &p.sight
	if s.holds == nil {
		s.holds, s.known = deletion.NewHolds(s), h.ignored == ignoredAtStart
		if h.ignored == ignoredLeaseAtStart {
			s.showLease("")
		}
	}
	if p.shows(h, &s.namespaces) {
		s.known = true
		if h.ignored != ignoredNamespace {
			s.namespace = h.namespace
		}
	}
	if p.shows(h, &s.lease) {
		if h.ignored == ignoredLease {
			s.showLease("")
		} else {
			s.showLease(h.lease)
		}
	}
	_, held := s.holds.Held("n")
	return held && path != h.ignored
}

// shows reports whether a watch shows the annotations as they are, for the first time.
func (p *process) shows(h *holding, w *watched) bool {
	if w.seen == h.version {
		return false
	}
	if w.announced != h.version {
		w.announced, w.due = h.version, h.changed.Add(time.Duration(h.dice.Int64N(int64(seenWithin))))
		if born := p.born.Add(time.Duration(h.dice.Int64N(int64(seenWithin)))); w.due.Before(born) {
			w.due = born
		}
	}
	if p.now.Before(w.due) {
		return false
	}
	w.seen = h.version
	return true
}

// showLease shows the leader Lease with a value of the annotation.
func (s *sight) showLease(value string) {
	s.holds.LeaderLease(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: "fleets", Name: "fleet-leader", Annotations: map[string]string{v1alpha1.AnnotationHoldDeletions: value},
	}})
}

// setsHeld is held for a set.
func (p *process) setsHeld(set *v1alpha1.MachineSet) bool {
	held := p.held(ignoredBySets)
	if in, err := machinefacts.ReadIntents(set); held && p.holding.ignored == ignoredByIntents && err == nil && len(in.Delete) > 0 {
		return false
	}
	return held
}

// holdDuringRollout runs a rollout under faults, with users that scale, and holds deletions from a
// random moment for a random time. It returns the first violation.
func holdDuringRollout(t *testing.T, seed uint64, ignored string) (wrong string) {
	t.Helper()
	dice := newDice(seed * 7907)
	strategies := []v1alpha1.MachineDeploymentStrategy{
		rollingUpdate("1", "0"), rollingUpdate("0", "1"), rollingUpdate("50%", "50%"), {Type: v1alpha1.RecreateMachineDeploymentStrategyType},
	}
	r := newRolling(t, seed, strategies[dice.IntN(len(strategies))], int32(1+dice.IntN(6)))
	r.mayHold(seed, ignored)
	r.predicts, r.sick = dice.IntN(2) == 0, dice.IntN(3) == 0
	r.mortal = r.sick && dice.IntN(2) == 0
	r.user(useTemplate("b"))
	change := func() {
		replicas := int32(dice.IntN(8))
		r.user(func(s *v1alpha1.MachineDeploymentSpec) { s.Replicas = replicas })
	}
	if dice.IntN(2) == 0 {
		change()
	}
	r.storm(dice.IntN(200))
	r.holdSomehow()
	for range 1 + dice.IntN(3) {
		r.storm(dice.IntN(200))
		change()
		if dice.IntN(3) == 0 {
			r.withoutFaults(time.Duration(dice.IntN(30)) * time.Minute)
		}
	}
	r.hold("", "")
	r.storm(200)
	if r.holding.wrong == "" {
		r.withoutFaults(2 * time.Hour)
		r.mustBeDone()
	}
	return r.holding.wrong
}

// holdDuringOutages holds deletions while machines are unhealthy, under faults, from a random
// moment for a random time. It returns the first violation.
func holdDuringOutages(t *testing.T, seed uint64, ignored string) (wrong string) {
	t.Helper()
	w := newWorld(t, seed, 2, 4, 2)
	w.mayHold(seed, ignored)
	w.fallible, w.wild = true, true
	w.limits.Budget = intstr.FromInt32(1 + w.dice.Int32N(2))
	w.limits.Thresholds = disruption.Thresholds{NotReady: 9, Percent: 100, ClosePercent: 30, CloseAfter: time.Minute}
	w.muddle(w.dice.IntN(400))
	w.holdSomehow()
	w.muddle(100 + w.dice.IntN(400))
	w.hold("", "")
	w.muddle(200)
	if w.holding.wrong == "" {
		w.settle(seed)
	}
	return w.holding.wrong
}

// TestHeldDeletions: from some seconds after a hold has begun until its end, no machine that has
// run is deleted or gets a disruption, and after its end all machines are as the users want them.
func TestHeldDeletions(t *testing.T) {
	for name, run := range map[string]func(*testing.T, uint64, string) string{"rollouts": holdDuringRollout, "outages": holdDuringOutages} {
		t.Run(name, func(t *testing.T) {
			for i := range worlds.Some(*seeds) {
				seed := *first + uint64(i)
				if wrong := run(t, seed, ""); wrong != "" {
					t.Errorf("seed %d: %s", seed, wrong)
				}
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

// TestHoldsThatAreIgnored shows that the worlds find each path on which a hold is ignored.
func TestHoldsThatAreIgnored(t *testing.T) {
	for ignored, run := range map[string]func(*testing.T, uint64, string) string{
		ignoredLease: holdDuringRollout, ignoredNamespace: holdDuringRollout, ignoredBySets: holdDuringRollout,
		ignoredByIntents: holdDuringRollout, ignoredAtStart: holdDuringRollout, ignoredLeaseAtStart: holdDuringRollout,
		ignoredByHealth: holdDuringOutages,
	} {
		t.Run(ignored, func(t *testing.T) {
			for seed := uint64(1); seed <= 200; seed++ {
				if wrong := run(t, seed, ignored); wrong != "" {
					t.Logf("seed %d: %s", seed, wrong)
					return
				}
			}
			t.Error("no world has found it")
		})
	}
}
