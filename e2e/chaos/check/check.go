package check

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated/cloudapi"
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
	// Wanted is spec.replicas, Surge what a rollout may have beyond that.
	Wanted, Surge int
	// Machines without deletionTimestamp.
	Machines int
}

// Ending is the moment at which a Machine was first seen to be deleted, or gone.
type Ending struct {
	At         time.Time
	MachineUID string
}

// Reset says when a slot's epochs began anew, because its Lease was deleted or etcd restored: at a moment that is not known
// more exactly.
type Reset struct {
	From, To time.Time
	Slot     int // -1 means all
}

// Outage is a time during which Machines could not be watched, because an API server was away or had just come back.
type Outage struct{ From, To time.Time }

// History is what a run has left behind.
type History struct {
	Calls  []cloudapi.Call
	Writes []Write
	Counts []Count
	// Endings are those of all Machines that were seen to end. Nil means that nobody has looked, and that VMs which were
	// deleted under Machines that stay are not looked for.
	Endings []Ending
	// Outages make Endings late: what was deleted during one is not looked for.
	Outages []Outage
	Resets  []Reset
}

// Report is what was found.
type Report struct {
	// Faults are sentences about what must not be.
	Faults []string
	// LateCalls are calls to the cloud, and LateWrites requests to API servers, of a session after a later one had begun
	// to work on the same object, and that changed nothing, as far as is known.
	LateCalls, LateWrites int
	// Calls and Writes are how many were looked at.
	Calls, Writes int
	// Sessions are all that have acted.
	Sessions int
}

// Check looks through a history.
func Check(h History) Report {
	c := checker{
		resets: h.Resets, sessions: map[string]bool{}, tenants: map[term]tenure{},
		endings: map[string]time.Time{}, endingsKnown: h.Endings != nil, outages: h.Outages,
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
	// endings say when each Machine was first seen to end, if anybody has looked.
	endings      map[string]time.Time
	endingsKnown bool
	outages      []Outage
	report       Report
}

func (c *checker) fault(format string, args ...any) {
	c.report.Faults = append(c.report.Faults, fmt.Sprintf(format, args...))
}

// actor notes who acts. A change that names nobody went past the fence.
func (c *checker) actor(caller, what string, at time.Time) (Actor, bool) {
	actor, known := ParseActor(caller)
	if !known || actor.Slot < 0 && !actor.Leader {
		c.fault("%s by %q, which names no ownership", what, caller)
		return actor, false
	}
	c.sessions[actor.Session] = true
	if !actor.Leader {
		c.alone(actor, what, at)
	}
	return actor, true
}

// term is the time for which a session holds a slot. No two sessions have the same.
type term struct{ slot, epoch int }

// alone checks that nobody else has acted under the same epoch of the slot.
func (c *checker) alone(actor Actor, what string, at time.Time) {
	key := term{actor.Slot, actor.Epoch}
	first, known := c.tenants[key]
	switch {
	case !known || c.resetBetween(actor.Slot, first.at, at) || c.resetBetween(actor.Slot, at, first.at):
		c.tenants[key] = tenure{actor: actor, at: at}
	case first.actor.Session != actor.Session:
		c.fault("%s by session %s under epoch %d of slot %d, which is that of session %s", what, actor.Session, actor.Epoch, actor.Slot, first.actor.Session)
	}
}

// tenure is the latest epoch that has worked on an object, and by whom.
type tenure struct {
	actor Actor
	at    time.Time
}

// isLate says that the actor works on what a later epoch has begun with, and notes who is the latest.
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

// again says of each operation of drivers that changes something what it is that must not happen twice, and with what.
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
		if !changes {
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
			c.fault("%s has deleted the VM of a Machine that nobody had deleted", text)
		}
		p := purpose{call.Operation, once.what(call)}
		if before, twice := first[p]; twice && p.what != "" {
			c.fault("%s "+once.fault+" call %d", text, p.what, before.ID)
			continue
		}
		first[p] = call
	}
}

// unordered is by how much the watch of Machines may be behind the call log: the two are not ordered.
const unordered = 5 * time.Second

// isLost says that a call has deleted the VM of a Machine that was not seen to end by then.
func (c *checker) isLost(call cloudapi.Call) bool {
	unseen := slices.ContainsFunc(c.outages, func(o Outage) bool { return !call.End.Before(o.From) && !call.End.After(o.To) })
	if !c.endingsKnown || call.MachineUID == "" || unseen {
		return false
	}
	at, ended := c.endings[call.MachineUID]
	return !ended || at.After(call.End.Add(unordered))
}

// counts checks that there were never more machines than had been asked for since they were last as many as wanted.
func (c *checker) counts(counts []Count) {
	allowed := map[string]int{}
	for _, n := range counts {
		if n.Machines == n.Wanted {
			allowed[n.Deployment] = 0
		}
		allowed[n.Deployment] = max(allowed[n.Deployment], n.Wanted+n.Surge)
		if n.Machines > allowed[n.Deployment] {
			c.fault("MachineDeployment %s had %d machines at %s, and at most %d were asked for since they were last equal",
				n.Deployment, n.Machines, n.At.Format(time.RFC3339Nano), allowed[n.Deployment])
		}
	}
}
