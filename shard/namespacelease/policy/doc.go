// Package policy decides whether the fleet acquires or releases the two Leases that Machine
// Controller Manager holds in the namespaces in which it works. It is pure: the time is a value.
//
// Guarantees: a Lease that another holder renews is never acquired; both are acquired or none;
// Leases of the fleet are released when the other Lease has another holder, when there is no root
// any more, or when the namespace is not selected any more and no work runs in it. If both are free
// and there is a root, they are acquired, whichever replica decides, so that no replica needs to
// ask another; where labels select namespaces, only in those. Not guaranteed: that a Lease is
// unchanged since it was read. Every write carries the resourceVersion; for a Lease that had
// another holder it is the one that was seen for the whole time.
package policy
