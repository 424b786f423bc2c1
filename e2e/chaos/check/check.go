package check

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// Write is a request to an API server that could change something, and was answered.
type Write struct {
	At     time.Time // when it was answered
	Caller string    // User-Agent
	Verb   string
	Object Object
	// Subresource is "" for the object itself.
	Subresource string
	Code        int // of the answer
	// Body is that of a patch, if the audit log has it.
	Body json.RawMessage
}

// Object names an object of an API server.
type Object struct{ Resource, Namespace, Name string }

// Count is how many machines a MachineDeployment had at a moment.
type Count struct {
	At         time.Time
	Deployment string
	// Desired is spec.replicas, Surge what a rollout may have beyond that.
	Desired, Surge int
	// Machines without deletionTimestamp.
	Machines int
}

// Ending is the time at which a Machine was first seen to be deleted, or gone.
type Ending struct {
	At         time.Time
	MachineUID string
}

// Reset is the period in which a slot's epochs started again, because its Lease was deleted or etcd
// restored.
type Reset struct {
	From, To time.Time
	Slot     int // -1 means all
}

// Outage is a time during which Machines could not be watched, because an API server was
// unavailable or had just restarted.
type Outage struct{ From, To time.Time }

// History is the records of a run.
type History struct {
	Calls  []cloudapi.Call
	Writes []Write
	Counts []Count
	// Endings are those of all Machines that were seen to end. Nil means that they were not observed,
	// and that VMs which were deleted under Machines that stay are not checked.
	Endings []Ending
	// Outages make Endings late: what was deleted during one is not checked.
	Outages []Outage
	Resets  []Reset
	// Orphans are the client tokens of VMs that the test has created itself, for Machines that never
	// existed.
	Orphans []string
}

// Report is the result of Check.
type Report struct {
	// Faults describe violations.
	Faults []string
	// LateCalls are calls to the cloud, and LateWrites requests to API servers, of a session after a
	// later one had begun to work on the same object, and that changed nothing, as far as is known.
	LateCalls, LateWrites int
	// Calls and Writes are how many were checked.
	Calls, Writes int
	// Sessions lists all that have acted.
	Sessions int
}

// Check checks a history.
func Check(h History) Report {
	c := checker{
		resets: h.Resets, sessions: map[string]bool{}, tenants: map[term]tenure{},
		endings: map[string]time.Time{}, endingsKnown: h.Endings != nil, outages: h.Outages, orphans: h.Orphans,
	}
	for _, e := range h.Endings {
		c.endings[e.MachineUID] = e.At
	}
	calls := slices.Clone(h.Calls)
	slices.SortStableFunc(calls, func(a, b cloudapi.Call) int { return a.End.Compare(b.End) })
	calls = slices.CompactFunc(calls, func(a, b cloudapi.Call) bool { return a.ID == b.ID && a.ID != 0 })
	c.calls(calls)
	writes := slices.Clone(h.Writes)
	slices.SortStableFunc(writes, func(a, b Write) int { return a.At.Compare(b.At) })
	c.writes(writes)
	counts := slices.Clone(h.Counts)
	slices.SortStableFunc(counts, func(a, b Count) int {
		return cmp.Or(cmp.Compare(a.Deployment, b.Deployment), a.At.Compare(b.At))
	})
	c.counts(counts)
	c.report.Calls, c.report.Writes, c.report.Sessions = len(calls), len(writes), len(c.sessions)
	return c.report
}

type checker struct {
	resets   []Reset
	sessions map[string]bool
	tenants  map[term]tenure // the first that has acted
	// endings are when each Machine was first seen to end; nil if that was not observed.
	endings      map[string]time.Time
	endingsKnown bool
	outages      []Outage
	orphans      []string
	report       Report
}

func (c *checker) fault(format string, args ...any) {
	c.report.Faults = append(c.report.Faults, fmt.Sprintf(format, args...))
}

// actor records the actor. A change without one bypassed the fence.
func (c *checker) actor(caller, what string, at time.Time) (Actor, bool) {
	actor, known := ParseActor(caller)
	if !known || actor.Slot < 0 && !actor.Leader {
		c.fault("%s by %q, which names no ownership", what, caller)
		return actor, false
	}
	c.sessions[actor.Session] = true
	if !actor.Leader {
		c.onlyUnderEpoch(actor, what, at)
	}
	return actor, true
}

// term is the time for which a session holds a slot. No two sessions have the same.
type term struct{ slot, epoch int }

// onlyUnderEpoch checks that no other session has acted under the same epoch of the slot.
func (c *checker) onlyUnderEpoch(actor Actor, what string, at time.Time) {
	key := term{actor.Slot, actor.Epoch}
	first, known := c.tenants[key]
	switch {
	case !known || c.resetBetween(actor.Slot, first.at, at) || c.resetBetween(actor.Slot, at, first.at):
		c.tenants[key] = tenure{actor: actor, at: at}
	case first.actor.Session != actor.Session:
		c.fault("%s by session %s under epoch %d of slot %d, which is that of session %s",
			what, actor.Session, actor.Epoch, actor.Slot, first.actor.Session)
	}
}

// tenure is the latest epoch under which a request for an object was sent, with its session.
type tenure struct {
	actor Actor
	at    time.Time
}

// isLate reports whether a later epoch was used for the same object before, and records the latest.
func (c *checker) isLate(latest map[string]tenure, object string, actor Actor, at time.Time) bool {
	if actor.Leader {
		return false
	}
	last, known := latest[object]
	if known && last.actor.Slot == actor.Slot && actor.Epoch < last.actor.Epoch && !c.resetBetween(actor.Slot, last.at, at) {
		return true
	}
	latest[object] = tenure{actor: actor, at: at}
	return false
}

func (c *checker) resetBetween(slot int, from, to time.Time) bool {
	return slices.ContainsFunc(c.resets, func(r Reset) bool {
		return (r.Slot == slot || r.Slot < 0) && !r.To.Before(from) && !r.From.After(to)
	})
}

// again describes for each operation of drivers that changes something which effect must not occur
// twice, and on what.
var again = map[cloudapi.Operation]struct {
	fault string
	what  func(cloudapi.Call) string
}{
	cloudapi.OpCreateInstance: {"is the second VM of machine %s, after", func(c cloudapi.Call) string { return c.Token }},
	cloudapi.OpModifyInstance: {"has set up VM %s a second time, after", func(c cloudapi.Call) string { return c.Instance }},
	cloudapi.OpDeleteInstance: {"has deleted VM %s a second time, after", func(c cloudapi.Call) string { return c.Instance }},
}

// calls checks that the cloud was changed once for each purpose.
func (c *checker) calls(calls []cloudapi.Call) {
	type purpose struct {
		operation cloudapi.Operation
		what      string
	}
	latest, first := map[string]tenure{}, map[purpose]cloudapi.Call{}
	for _, call := range calls {
		once, changes := again[call.Operation]
		if !changes || call.Operation == cloudapi.OpCreateInstance && slices.Contains(c.orphans, call.Token) {
			continue
		}
		text := fmt.Sprintf("call %d, %s of %s,", call.ID, call.Operation, cmp.Or(call.Machine, call.Instance, call.Token))
		actor, known := c.actor(call.Caller, text, call.End)
		if known && c.isLate(latest, cmp.Or(call.Machine, call.Instance), actor, call.End) && !call.Changed {
			c.report.LateCalls++
		}
		if !call.Changed {
			continue
		}
		if call.Operation == cloudapi.OpDeleteInstance && c.isLost(call) {
			c.fault("%s has deleted the VM of a Machine that was not deleted", text)
		}
		p := purpose{call.Operation, once.what(call)}
		if before, twice := first[p]; twice && p.what != "" {
			c.fault("%s "+once.fault+" call %d", text, p.what, before.ID)
			continue
		}
		first[p] = call
	}
}

// unordered is the possible lag of the watch of Machines behind the call log: the two are not
// ordered.
const unordered = 5 * time.Second

// isLost reports whether a call has deleted the VM of a Machine that was not seen to end by then.
func (c *checker) isLost(call cloudapi.Call) bool {
	unseen := slices.ContainsFunc(c.outages, func(o Outage) bool { return !call.End.Before(o.From) && !call.End.After(o.To) })
	if !c.endingsKnown || call.MachineUID == "" || unseen || slices.Contains(c.orphans, call.MachineUID) {
		return false
	}
	at, ended := c.endings[call.MachineUID]
	return !ended || at.After(call.End.Add(unordered))
}

// counts checks that there were never more machines than were desired since the numbers were last
// equal.
func (c *checker) counts(counts []Count) {
	allowed := map[string]int{}
	for _, n := range counts {
		if n.Machines == n.Desired {
			allowed[n.Deployment] = 0
		}
		allowed[n.Deployment] = max(allowed[n.Deployment], n.Desired+n.Surge)
		if n.Machines > allowed[n.Deployment] {
			c.fault("MachineDeployment %s had %d machines at %s, and at most %d were desired since the numbers were last equal",
				n.Deployment, n.Machines, n.At.Format(time.RFC3339Nano), allowed[n.Deployment])
		}
	}
}
