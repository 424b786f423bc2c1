// Package claim decides whether the fleet is alone in a namespace, from the two Leases that Machine Controller Manager
// holds where it works. It is pure: the time is a value.
//
// Guarantees: a Lease that another holder renews is never taken; both are taken or none; what is held is given up when the
// other Lease is another holder's, or when there is no root any more. Both free and a root means that they are taken, whoever
// decides, so that nobody has to be asked.
// Not guaranteed: that a Lease is as it was seen. Every write carries the resourceVersion, and of a Lease that is taken
// from somebody it is the one that was seen for the whole time.
package policy
