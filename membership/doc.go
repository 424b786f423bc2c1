// Package state decides who is alive. It is pure: what was observed and the time go in, requests come out. Nothing here
// sends, waits or asks for the time; the shell around it does.
//
// Own is the life of this process's session Lease: how it is taken, renewed, lost and given up, and the fence, the moment
// after which the session may start nothing more. Others times the session Leases of all replicas by what is observed
// here, and says which of them have been silent for so long that they may be declared dead, and when a holder is proven
// dead. Config holds all durations of the protocol.
//
// Guarantees, as long as clocks drift less than Config allows: the fence of a session has passed before anybody else can
// have taken its session Lease for silence; a session never creates its Lease a second time; an API server that was away
// for any time makes nobody look dead when it comes back.
//
// Not guaranteed: anything about a request that was checked before the fence and sent long after it, by a process that
// was stopped in between. Preconditions on objects and tokens at the cloud make those harmless.
package membership
