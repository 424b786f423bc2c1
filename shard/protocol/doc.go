// Package state decides which slots this session holds, and, while it leads, who should hold which. It is pure, in the way of
// a protocol without I/O: Replica.Step takes the time and one event, and returns requests to send and changes to carry out.
// It never waits; Output.WakeAt says when to step again if nothing happens before.
//
// A Replica keeps facts (every Lease as last seen, with when) and derives from all of them what to do, so a lost, repeated
// or late event changes when something happens and not what. There is at most one request in flight for a Lease.
//
// Guarantees: at most one session is entitled to a slot, as long as nobody writes holders into slot Leases by hand; a slot
// that is given up has nothing in flight, or its process is about to exit without emptying its session Lease; every slot
// has an owner in the end, if a replica that may hold it lives.
//
// Not guaranteed: that a process that is stopped between a check and a send does not send late, and that a hand-written
// holder is noticed by the old one before the new one acts.
package protocol
