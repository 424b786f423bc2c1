// Package membership decides which sessions are alive. It is pure: its input is what was observed
// and the time, its output are requests. It does not send, wait or read a clock; package leases
// does.
//
// Own is the life of this process's session Lease: how it is acquired, renewed, lost and released,
// and the fence, the moment after which the session may start nothing more. Others times the
// session Leases of all replicas by what this process observes: it returns which of them have been
// silent for so long that they may be declared dead, and when a holder is proven dead. Config holds
// all durations of the protocol.
//
// Guarantees, as long as clocks drift less than Config allows: the fence of a session has passed
// before any other session can acquire its session Lease because of silence; a session never
// creates its Lease a second time; an API server that was unavailable for any time lets no session
// look dead when it is available again.
//
// Not guaranteed: anything about a request that was checked before the fence and sent long after
// it, by a process that was stopped in between. Preconditions on objects and tokens at the cloud
// make those harmless.
package membership
