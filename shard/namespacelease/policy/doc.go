// Package policy decides whether the fleet acquires or releases the two Leases that Machine
// Controller Manager holds in the namespaces in which it works. It is pure: the time is a value.
//
// Guarantees: a Lease that another holder renews is never acquired; both are acquired or none;
// Leases of the fleet are released when the other Lease has another holder, or when there is no
// root any more. If both are free and there is a root, they are acquired, whichever replica
// decides, so that no replica needs to ask another. Not guaranteed: that a Lease is unchanged since
// it was read. Every write carries the resourceVersion; for a Lease that had another holder it is
// the one that was seen for the whole time.
package policy
