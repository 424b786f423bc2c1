package disruption

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// World is the input of a decision about one root. It is read only.
type World struct {
	Now time.Time
	// Limits are the fleet's settings.
	Limits Limits
	// Disruptions that are recorded on the root.
	Disruptions []Disruption
	// Desired is the desired number of machines of the root.
	Desired int32
	// Sets of the root, without those that are being deleted.
	Sets []*v1alpha1.MachineSet
	// Machines below the root, from the cache.
	Machines []Member
	// Undecodable are machines below the root that cannot be decoded. They exist, and nothing else is
	// known of them.
	Undecodable []*v1alpha1.Machine
	// Breakers are the open circuit breakers.
	Breakers Snapshot
	// NotBefore is when the next disruption may be added, because an API server is away or was until a
	// moment ago: what machines state of their health may be old. Away reports that there is no such
	// time yet.
	NotBefore time.Time
	Away      bool
	// Held reports whether deletions of machines are held: no machine that has run gets a disruption.
	Held bool
	// Limited reports whether machines that have run need a reservation of the deletion budget.
	// Reserved are the reservations, by Disruption.Key.
	Limited  bool
	Reserved map[string]bool
	// More is when there will be more reservations.
	More time.Time
	// Deleted reports whether the root is being deleted, with its machines.
	Deleted bool
}

// Limits are the fleet's settings.
type Limits struct {
	// HealthTimeout is how long a machine may be unhealthy. A machine's own timeout has precedence.
	HealthTimeout time.Duration
	// Budget is how many machines of a root may be deleted or created at a time while others are
	// replaced: a number, or a percentage of the desired ones, rounded down, and at least 1.
	Budget intstr.IntOrString
	// Thresholds of zones and clusters; and of a root, for machines that never became healthy.
	Thresholds Thresholds
}

// Member is a machine with its scope, which only decisions under open circuit breakers need.
type Member struct {
	Machine *v1alpha1.Machine
	Scope   Scope
}

// Verdict is the result of a decision.
type Verdict struct {
	// Disruptions to record on the root. Changed reports whether they differ from the recorded ones.
	Disruptions []Disruption
	Changed     bool
	// Open are the scopes of the root's machines with an open circuit breaker, a cluster before its
	// zones.
	Open []Scope
	// Waiting is how many machines are not deleted or replaced only because deletions are held.
	Waiting int
	// Deletions are the keys of the disruptions that are added for machines that have run. Unreserved
	// is how many such machines have none only because they lack a reservation.
	Deletions  []string
	Unreserved int
	// Wake is the time until the next decision; 0 means when an event arrives.
	Wake time.Duration
}

// Name returns what the verdict does: Record or Rest.
func (v *Verdict) Name() string {
	if v.Changed {
		return "Record"
	}
	return "Rest"
}

// Reason returns the numbers behind the verdict.
func (v *Verdict) Reason() string {
	return fmt.Sprintf("%d disruptions, %d open circuit breakers, %d machines wait for the end of a hold, %d for the deletion budget",
		len(v.Disruptions), len(v.Open), v.Waiting, v.Unreserved)
}

// Decide returns which machines of a root may be replaced. It is total: every world has a verdict.
//
// A disruption is never withdrawn while it could be used: the machine controller may be about to
// use it. With 10 machines and a limit of 1, of three that are unhealthy for too long the first
// gets a disruption. It fails, is deleted, and another is created; when that one runs, the second
// gets one.
func Decide(w World) Verdict {
	v := Verdict{Disruptions: standingDisruptions(w), Open: openScopes(w), Waiting: waiting(w)}
	v.addDisruptions(w)
	v.Wake = wake(w, v.Disruptions)
	v.Changed = !slices.EqualFunc(v.Disruptions, w.Disruptions, func(a, b Disruption) bool {
		return a.UID == b.UID && a.Since.Equal(&b.Since)
	})
	return v
}

// standingDisruptions returns the disruptions that can still be used.
func standingDisruptions(w World) []Disruption {
	return slices.DeleteFunc(slices.Clone(w.Disruptions), func(p Disruption) bool {
		i := slices.IndexFunc(w.Machines, func(m Member) bool { return m.Machine.UID == p.UID })
		return i < 0 || stageOf(w.Machines[i].Machine, w.Now) == preserved || w.Machines[i].Machine.DeletionTimestamp != nil ||
			!p.appliesTo(w.Machines[i].Machine) || isHeldBack(w, w.Machines[i].Machine)
	})
}

// isHeldBack reports whether a machine is not replaced now although it should be: deletions are
// held and it has run, or its set is frozen. Such a machine has no disruption, also if it had one
// before: with one it would stay Failed after its Node has recovered, and be deleted when the hold
// or the freeze ends.
func isHeldBack(w World, m *v1alpha1.Machine) bool {
	hasFailed := machinefacts.HasFailed(m)
	if w.Held && (!hasFailed || machinefacts.HasFailedHealth(m)) {
		return true
	}
	return hasFailed &&
		slices.ContainsFunc(w.Sets, func(s *v1alpha1.MachineSet) bool { return machinefacts.IsFrozen(s) && metav1.IsControlledBy(m, s) })
}

// manyTries is how many machines of a root have to fail to come up before they are tried one after
// the other. They run nothing: fewer cost a broken cloud some requests, and nothing else.
const manyTries = 5

// manyFailToComeUp reports whether too many of the root's machines have failed without ever having
// been healthy.
func manyFailToComeUp(w World) bool {
	bad, all := 0, 0
	for _, member := range w.Machines {
		switch m := member.Machine; stageOf(m, w.Now) {
		case failed:
			all++
			if !machinefacts.HasFailedHealth(m) {
				bad++
			}
		case steady:
			all++
		case coming, leaving, preserved:
		}
	}
	return bad >= manyTries && 100*bad > w.Limits.Thresholds.Percent*all
}

// cameUpSince reports whether a machine of the root that was created after a time runs.
func cameUpSince(w World, moment metav1.Time) bool {
	return slices.ContainsFunc(w.Machines, func(member Member) bool {
		m := member.Machine
		return m.CreationTimestamp.After(moment.Time) && m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning
	})
}

// openScopes returns the scopes of the root's machines with an open circuit breaker.
func openScopes(w World) (scopes []Scope) {
	for _, member := range w.Machines {
		if member.Machine.DeletionTimestamp == nil {
			scopes = append(scopes, w.Breakers.openFor(member)...)
		}
	}
	slices.SortFunc(scopes, Scope.compare)
	return slices.Compact(scopes)
}

// wake returns when the next machine will have been unhealthy for too long, or may be tried in
// spite of an open circuit breaker, or its preservation ends.
func wake(w World, stand []Disruption) (wait time.Duration) {
	next := func(at time.Time) {
		if d := at.Sub(w.Now); d > 0 && (wait == 0 || d < wait) {
			wait = d
		}
	}
	if len(w.Machines) > 0 {
		next(w.NotBefore)
	}
	next(w.More)
	for _, member := range w.Machines {
		at, _ := machinefacts.HealthDeadline(member.Machine, w.Limits.HealthTimeout) // without a deadline at is long ago
		next(at)
		if expiry := member.Machine.Status.CurrentStatus.PreserveExpiryTime; expiry != nil && stageOf(member.Machine, w.Now) == preserved {
			next(expiry.Time)
		}
	}
	for _, c := range candidates(w, stand) {
		if !c.neverUp && len(w.Breakers.openFor(c.Member)) > 0 {
			next(c.since.Add(w.Limits.Thresholds.TryAfter))
		}
	}
	return wait
}
