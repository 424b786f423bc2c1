// Package model is a model of the fleet's protocol, and a checker that examines every reachable
// state. It is not part of the product and shares no code with it: it states briefly what
// membership and shard must do, and shows what each rule prevents. Its tests explore the complete
// rules, and then again with one rule left out, which the checker must find.
//
// # What is modelled
//
// fleet: sessions that share one slot; their session Leases and the slot Lease at an API server
// with compare and swap; a network that delays for any time, loses and repeats; watches that lag;
// sessions that are killed, suspended, leave, or run twice under one replica's name; clocks that
// are slow or fast; Leases that a user deletes; an API server that is unavailable. The leader is
// any session, or several. A scenario is a fleet with a budget for each kind of fault, so that each
// is small enough to be explored completely.
//
// fitness: replicas that renew their session Leases and cannot work. Lists and watches fail while
// requests about single Leases succeed, for the replica or for one process; slots do not open at a
// replica. A fault that has begun lasts. Replicas report what they can do, and one of them leads
// and assigns the slots by it.
//
// children: a parent with intents, its children with derived names, and two sessions that own it in
// turn. What an owner has sent, or checked and not yet sent, takes effect at any later time.
//
// cloud: one Machine with its VM, in the same way, and the effect of a stale first list.
//
// # Promises
//
// At every moment: no two sessions are entitled to act on the slot; in a voluntary hand-over,
// nothing of the old holder is in flight when the new one is entitled; an unavailable API server
// alone leads to no living session being declared dead; there is never a surplus child; no owner
// creates a VM for a Machine that is gone.
//
// In fitness also: only its holder empties a leader Lease, a slot that is served is not moved to a
// replica that does not act, and a replica that was not seen to serve has one slot at most.
//
// From every reachable state, when no more faults occur: the slot is eventually held by a living
// session that knows it and may act, on every path, in a bounded number of steps. In fitness: every
// slot is served, while the faults of replicas last, as long as one replica can work. A finding
// reports the largest number of ticks that this takes. "No more faults occur" means that everything
// that is due happens before time passes, and in any order.
//
// # Time
//
// A tick stands for about 2.5 s. Renewals are sent once in a tick, a request has one, the fence is
// 3 (9 s) after the send, take-over is 6 (15 s) without a change, the come-back bound is 1. What
// Config validates holds of these too: the fence of a slow clock (3 + 1) ends before a fast clock
// takes over (6 - 1), and 6 > 2 × (1 + 1) + 1. Nothing else about durations enters the argument. A
// tick may come between any two steps, so a step takes any time, and what is rounded to ticks is
// less than the drift of a clock. The scenario "outage" is the exception: there, everything that is
// due happens within the tick, because it must show that no prompt session is declared dead.
//
// # Why it is small and still valid
//
//   - Versions and UIDs are only compared with the current ones. So they are bits, and a request
//     that names an old version is removed: it has no effect, and its sender learns the result by
//     reading.
//   - A view jumps to the current version, at any time. A view of an older version has jumped
//     earlier.
//   - An answer shows its sender no more than a read at the time of the commit. Where that matters
//     (the fence) answers are on the wire.
//   - What a session knows is kept until it is used, so a read and its late answer are one step.
//   - The leader's updates of the slot Lease take effect at once. A later one would conflict, or is
//     the same.
//   - A session that is gone, and that nothing names, is replaced by another one under its number.
//   - Steady sessions never have to renew. They represent the other side of rules that involve two
//     sessions.
//
// # What is not modelled
//
// The file lock of a pod; a restored etcd under the product's rules; weights; more than one slot,
// except in fitness. The pause between check and send is in children and cloud: in fleet a session
// that is entitled acts at once. In fitness, requests take effect at once, a tick stands for 5 s,
// the back-off after a failure grows to 2 min, and there is one target cluster.
//
// # What the text of the protocol leaves open
//
// Of each rule that can be read in several ways only this reading is safe; the others are
// mutations:
//
//   - A quarantine lasts 15 s from when its list, not the Lease, was first seen.
//   - A missing session Lease is timed from a live read, begun after its holder was seen on the
//     slot Lease.
//   - The annotation of a created session Lease belongs to the Lease and outlives its first
//     session.
//   - Every failed renewal is a gap, and a session that does not hold its session Lease times none
//     of the others.
//   - A read that shows the same version is no change.
//   - A proof of death is forgotten when the slot Lease names another session.
//
// One rule is in the model and could be left out without harm: a session that was suspended reads
// its slot Leases live before it resumes.
//
// One case remains that no rule prevents: a create that arrives after its child has existed and
// been deleted, and its intent was removed, creates the child once more. The owner deletes surplus
// children.
//
// # Running it
//
// The tests explore two replicas completely, and print every story with -v. MODEL_TIME=30m explores
// each large scenario, most of them of three replicas, for that long, breadth first, up to
// MODEL_STATES states (default 6 million, about 2 GB).
package model
