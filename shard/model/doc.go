// Package model is a model of the fleet's protocol, and a checker that looks at every state it can reach. It is no part
// of the product and shares no code with it: it says in few words what membership and shard must do, and shows which
// rule is there for what. Its tests explore the rules as they are, and then again with one rule left out, which must be
// found.
//
// # What is modelled
//
// fleet: sessions that share one slot; their session Leases and the slot Lease at an API server with compare and swap;
// a network that delays for any time, loses and repeats; watches that lag; sessions that are killed, suspended, leave,
// or run twice under one replica's name; clocks that are slow or fast; Leases deleted by hand; an API server that is
// away. The leader is any session, or several. A scenario is a fleet with a budget for each kind of fault, so that each
// is small enough to be explored to the end.
//
// observed: the same fleet under other rules, as a variant that the product does not follow: see docs/adr/0011. A session's
// fence counts only from renewals that its watch has shown to it, the slot Lease records under which session Lease its holder
// has acquired it, and every new slot Lease waits. Leases are deleted, with and without a finalizer, and removed by force;
// etcd is restored, with the versions and UIDs of then.
//
// fitness: replicas that renew their session Leases and cannot work. Lists and watches of a replica do not pass while its
// requests about single Leases do, for the replica or for one process; slots do not open at a replica. What has begun lasts.
// Replicas report what they can do, and one of them leads and assigns the slots by it.
//
// children: a parent with intents, its children with derived names, and two sessions that own it in turn. What an owner
// has sent, or checked and not yet sent, lands at any time later.
//
// cloud: one Machine with its VM, in the same way, and what a first list is worth.
//
// # Promises
//
// At every moment: no two sessions are entitled to act on the slot; in a planned hand-over, nothing of the old holder is
// in flight when the new one is entitled; an outage of the API server alone has no living session declared dead; there
// is never a child too many; no owner makes a VM for a Machine that is gone.
//
// In fitness also: only its holder empties a leader Lease, a slot that is served is not moved to a replica that does not act,
// and a replica that was not seen to serve has one slot at most.
//
// From every state that can be reached, when nothing goes wrong any more: the slot comes to be held by a living session
// that knows it and may act, on every way, in a bounded number of steps. In fitness: every slot is served, while what is
// wrong with a replica stays wrong, as long as one replica can work. A finding reports the most ticks that this takes. "Nothing goes wrong" means that whatever is due
// happens before time goes on, and in any order.
//
// # Time
//
// A tick stands for about 2.5 s. Renewals are sent once in a tick, a request has one, the fence is 3 (9 s) after the
// send, take-over is 6 (15 s) without a change, the come-back bound is 1. What Config validates holds of these too:
// the fence of a slow clock (3 + 1) ends before a fast clock takes over (6 - 1), and 6 > 2 × (1 + 1) + 1. Nothing else
// about durations enters the argument. A tick may come between any two steps, so a step takes as long as it likes, and
// what is rounded to ticks is less than what a clock may drift. The scenario "outage" is the exception: there, whatever
// is due happens within the tick, because it must show that nobody is harmed who is prompt.
//
// # Why it is small, and still tells the truth
//
//   - Versions and UIDs are only compared with the current ones. So they are bits, and a request that names an old
//     version is forgotten: it has no effect, and its sender learns the rest by reading.
//   - A view jumps to what is current, at any time. One that stands at an older version has jumped then.
//   - An answer tells its sender no more than a read at the time of the commit. Where that matters (the fence) answers
//     are on the wire.
//   - What a session knows is kept until it is used, so a read and its late answer are one step.
//   - The leader's updates of the slot Lease take effect at once. A later one would conflict, or is the same.
//   - A session that is gone, and that nothing names, is born again under its number as another one.
//   - Steady sessions never have to renew. They stand for the other side where a rule speaks of two.
//
// # What is not modelled
//
// The file lock of a pod; a restored etcd under today's rules; weights; more than one slot, but in fitness. The pause
// between check and send is in children and cloud: in fleet a session that is entitled acts at once. In fitness, requests
// take effect at once, a tick stands for 5 s, the back-off after a failure grows to 2 min, and there is one target cluster.
//
// # What the text of the protocol leaves open
//
// The model found harm in these readings, and each other one is a mutation:
//
//   - A quarantine lasts 15 s from when its list, not the Lease, was first seen.
//   - A missing session Lease is timed from a live read, begun after its holder was seen on the slot Lease.
//   - The mark of a created session Lease belongs to the Lease and outlives its first session.
//   - Every failed renewal is a gap, and a session that does not hold its session Lease times nobody else's.
//   - A read that shows the same version is no change.
//   - A proof of death is forgotten when the slot Lease names somebody else.
//
// One rule is in the model and could be left out without harm: a session that was suspended reads its slot Leases live
// before it goes on.
//
// One thing remains that no rule prevents: a create that lands after its child has lived and gone, and its intent was
// struck off, makes the child once more. The owner deletes what is too many.
//
// # Running it
//
// The tests explore two replicas to the end, and print every story with -v. MODEL_TIME=30m explores each large scenario, most
// of them of three replicas, for that long, breadth first, as far as MODEL_STATES (default 6 million, about 2 GB) goes.
package model
