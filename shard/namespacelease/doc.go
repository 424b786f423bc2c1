// Package namespacelease prevents the fleet from working in a namespace together with Machine
// Controller Manager or another fleet. A manager of a namespace holds the two Leases there that
// Machine Controller Manager holds; shard/namespacelease/policy decides when they are acquired and
// released.
//
// The Leases of a namespace are acquired by every replica that has work there: its own watch shows
// when they are or become free, so that no other replica needs to be notified. They are released
// only by the holder of the slot of the namespace's name, which finds a namespace by its Leases.
// All replicas act as one holder, the fleet.
//
// Guarantees: a namespace is served only while both Leases name the fleet; every update carries UID
// and resourceVersion, so that a Lease is acquired only if it did not change while it was watched;
// while there is work in a namespace whose Leases are free, they are acquired, within a second
// after a write that conflicted. Not guaranteed: that Machine Controller Manager respects the
// Leases. It does not if it runs without leader election.
package namespacelease
