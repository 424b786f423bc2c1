// Package leave gives a fleet's machines back to Machine Controller Manager: it takes off what the fleet alone has put on
// objects, and then gives up the Leases that keep Machine Controller Manager out.
//
// Nothing is made, deleted or scaled by it, and no template, selector, finalizer or status is touched, so that no rollout
// begins. It may be broken off and repeated.
//
// Guarantees: it begins only when no session of the fleet lives, and sees to it that none of the dead comes back; the
// Leases are given up last.
// Not guaranteed: that a fleet which is started again meanwhile stays away.
package handback
