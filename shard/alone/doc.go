// Package alone keeps the fleet from working in a namespace beside Machine Controller Manager or another fleet. Whoever
// works in a namespace holds the two Leases there that Machine Controller Manager holds; what to do about them is decided
// in shard/alone/claim.
//
// The Leases of a namespace are written by the holder of the slot of the namespace's name. It learns of a namespace by
// its Leases; where there are none, whoever has a root there makes one without a holder, which asks for it.
//
// Guarantees: a namespace is served only while both Leases name the fleet; every update carries UID and resourceVersion,
// so that a Lease is taken only if it has not changed for all the time that it was watched.
// Not guaranteed: that Machine Controller Manager obeys. One that runs without leader election does not.
package alone
