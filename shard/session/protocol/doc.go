// Package protocol decides which slots this session holds and, while it leads, which replica each
// slot is assigned to. It is pure, a protocol without I/O: Session.Step receives the time and one
// event, and returns requests to send and changes to carry out. It never waits; Output.WakeAt is
// when to step again if nothing happens before.
//
// A Session keeps facts (the last observed version of every Lease, and when it was observed) and
// derives everything that it does from all of them, so a lost, repeated or late event changes when
// something happens and not what. At most one request for each Lease is in flight.
//
// Each part of a Session decides about one subject, and can be read alone: activation, when the
// session may act; ability, what it can do; table, what the Leases show; proofs, which sessions are
// dead; renewal, what the session reports; holder, its slots, by acquireRules; leader and assigner,
// the work of a leader; observer, the Leases that the watch and reads show. They share the agenda
// of what has to be decided and the outbox of what the step returns. Session has the order in which
// they decide.
//
// Guarantees: at most one session is entitled to a slot, as long as no other client writes holders
// into slot Leases; a slot that is released has nothing in flight, or its process is about to exit
// without emptying its session Lease; every slot eventually has an owner, if a replica that may
// hold it lives.
//
// Not guaranteed: that a process that is stopped between a check and a send does not send late;
// that the old holder notices a holder that another client has written before the new one acts.
package protocol
