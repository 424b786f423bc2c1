package disruption

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// candidate is a machine to be replaced, without a disruption.
type candidate struct {
	Member
	// since is when it became a candidate.
	since time.Time
	// neverUp reports whether it never was a healthy Node.
	neverUp bool
}

// answer is the result of a rule for a candidate.
type answer int

const (
	// undecided: the next rule decides.
	undecided answer = iota
	// granted: the candidate gets its disruption.
	granted
	// refused: it does not, for now.
	refused
)

// granting is a decision about candidates in progress.
type granting struct {
	w World
	v *Verdict
	// load includes the disruptions that were added.
	load load
	// limit is how much load there may be.
	limit int
	// manyFail reports whether too many machines of the root never came up.
	manyFail bool
}

// grantRule is a reason to grant a disruption to a candidate, or to refuse it.
type grantRule struct {
	name   string
	decide func(*granting, candidate) answer
}

// grantRules decide on each candidate, in this order: the first one that does not leave it
// undecided. A candidate on which none decides gets its disruption.
var grantRules = []grantRule{
	{"deletions held, or MachineSet frozen", func(g *granting, c candidate) answer { return refusedIf(isHeldBack(g.w, c.Machine)) }},
	{"never a healthy Node, and others come up", (*granting).costsNothing},
	{"machines of some slots not counted", func(g *granting, c candidate) answer { return refusedIf(!c.neverUp && !g.w.Breakers.Complete) }},
	{"circuit breaker open", func(g *granting, c candidate) answer { // one machine at a time is tried after TryAfter
		mayTry := g.load.against(c) == 0 && g.w.Limits.Thresholds.mayTry(c.since, g.w.Now)
		return refusedIf(!c.neverUp && g.isBroken(c) && !mayTry)
	}},
	{"disruption budget exhausted", func(g *granting, c candidate) answer { return refusedIf(g.load.against(c) >= g.limit) }},
	{"deletion budget not reserved", (*granting).unreserved},
}

// addDisruptions adds those that are granted now.
func (v *Verdict) addDisruptions(w World) {
	if w.Away || w.Now.Before(w.NotBefore) {
		return
	}
	waiting := candidates(w, v.Disruptions)
	g := &granting{w: w, v: v, load: loadOf(w, v.Disruptions, waiting), limit: limitOf(w), manyFail: manyFailToComeUp(w)}
	for _, c := range waiting {
		if len(v.Disruptions) >= maxDisruptions {
			break // the others follow when some of these are replaced
		}
		if !g.grants(c) {
			continue
		}
		g.load = g.load.with(c)
		added := disruptionOf(c.Machine)
		v.Disruptions = append(v.Disruptions, added)
		if !c.neverUp {
			v.Deletions = append(v.Deletions, added.Key())
		}
	}
}

// grants reports whether a candidate gets its disruption.
func (g *granting) grants(c candidate) bool {
	for _, rule := range grantRules {
		if is := rule.decide(g, c); is != undecided {
			return is == granted
		}
	}
	return true
}

// costsNothing grants at once what costs nothing that runs, and proves nothing about others.
func (g *granting) costsNothing(c candidate) answer {
	if c.neverUp && !g.isBroken(c) && (!g.manyFail || cameUpSince(g.w, c.Machine.CreationTimestamp)) {
		return granted
	}
	return undecided
}

// unreserved refuses what has no reservation, and counts what has none and nothing else against it.
func (g *granting) unreserved(c candidate) answer {
	if c.neverUp || !g.w.Limited || g.w.Reserved[disruptionOf(c.Machine).Key()] {
		return undecided
	}
	if g.load.against(c)+g.v.Unreserved < g.limit {
		g.v.Unreserved++
	}
	return refused
}

// isBroken reports whether a circuit breaker is open for a candidate.
func (g *granting) isBroken(c candidate) bool { return len(g.w.Breakers.openFor(c.Member)) > 0 }

func refusedIf(refuses bool) answer {
	if refuses {
		return refused
	}
	return undecided
}

// candidates returns the machines to be replaced, in the order in which they became candidates.
func candidates(w World, stand []Disruption) []candidate {
	var waiting []candidate
	for _, member := range w.Machines {
		m := member.Machine
		if isAllowed(stand, m.UID) {
			continue
		}
		c := candidate{Member: member, since: m.Status.CurrentStatus.LastUpdateTime.Time}
		switch deadline, unhealthy := machinefacts.HealthDeadline(m, w.Limits.HealthTimeout); {
		case stageOf(m, w.Now) == failed:
			c.neverUp = !machinefacts.HasFailedHealth(m)
		case unhealthy && stageOf(m, w.Now) == steady && !deadline.After(w.Now):
			c.since = deadline
		default:
			continue
		}
		waiting = append(waiting, c)
	}
	slices.SortFunc(waiting, func(a, b candidate) int {
		return cmp.Or(a.since.Compare(b.since), strings.Compare(a.Machine.Name, b.Machine.Name))
	})
	return waiting
}

func isAllowed(disruptions []Disruption, uid types.UID) bool {
	return slices.ContainsFunc(disruptions, func(p Disruption) bool { return p.UID == uid })
}

// load has the numbers that count against the limit. A machine that is replaced counts from its
// disruption until the new one is a healthy Node, and so do machines that are created or deleted
// for another reason.
type load struct {
	// allowed have a disruption, and still exist.
	allowed int
	// leaving are being deleted; coming are being created, or are desired and do not exist. One that
	// is deleted and one that is created instead are one replacement.
	leaving, coming int
	// failed have failed, and have no disruption yet.
	failed int
}

func (l load) moving() int { return l.allowed + max(l.leaving, l.coming) }

func loadOf(w World, stand []Disruption, waiting []candidate) load {
	l := load{allowed: len(stand), coming: missing(w)}
	for _, member := range w.Machines {
		switch stageOf(member.Machine, w.Now) {
		case coming:
			l.coming++
		case leaving:
			l.leaving++
		case steady, failed, preserved:
		}
	}
	for _, c := range waiting {
		if c.hasFailed() {
			l.failed++
		}
	}
	return l
}

func (c candidate) hasFailed() bool { return machinefacts.HasFailed(c.Machine) }

// against returns what counts against a candidate. A machine that still has a Node is replaced only
// after those that have failed before it; these do not delay each other.
func (l load) against(c candidate) int {
	if c.hasFailed() {
		return l.moving()
	}
	return l.moving() + l.failed
}

// with adds a candidate that has got its disruption.
func (l load) with(c candidate) load {
	l.allowed++
	if c.hasFailed() {
		l.failed--
	}
	return l
}

// missing counts the desired machines of sets that the cache does not have: they are being created.
func missing(w World) (n int) {
	for _, set := range w.Sets {
		there := 0
		for _, member := range w.Machines {
			if member.Machine.DeletionTimestamp == nil && metav1.IsControlledBy(member.Machine, set) {
				there++
			}
		}
		for _, m := range w.Undecodable {
			if m.DeletionTimestamp == nil && metav1.IsControlledBy(m, set) {
				there++
			}
		}
		n += max(int(set.Spec.Replicas)-there, 0)
	}
	return n
}

// limitOf returns the number of concurrent replacements.
func limitOf(w World) int {
	n, err := intstr.GetScaledValueFromIntOrPercent(&w.Limits.Budget, int(w.Desired), false)
	if err != nil {
		return 1 // the flag was validated
	}
	return max(n, 1)
}
