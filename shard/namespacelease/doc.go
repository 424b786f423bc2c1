// Package alone keeps the fleet from working in a namespace beside Machine Controller Manager or another fleet. Whoever
// works in a namespace holds the two Leases there that Machine Controller Manager holds; what to do about them is decided
// in shard/namespacelease/policy.
//
// The Leases of a namespace are taken by every replica that has something to do there: its own watch shows when they are
// free or will be, so that no other replica has to learn of it. They are given up by the holder of the slot of the
// namespace's name alone, which learns of a namespace by its Leases. All of them act for the same holder, the fleet.
//
// Guarantees: a namespace is served only while both Leases name the fleet; every update carries UID and resourceVersion,
// so that a Lease is taken only if it has not changed for all the time that it was watched; while there is something to do
// in a namespace whose Leases are free, they are taken, within a second after a write that came too late.
// Not guaranteed: that Machine Controller Manager obeys. One that runs without leader election does not.
package namespacelease
