// Package handback gives a fleet's machines back to Machine Controller Manager: it removes the
// labels and annotations that only the fleet uses, and then releases the Leases that keep Machine
// Controller Manager from starting.
//
// It creates, deletes and scales nothing, and changes no template, selector, finalizer or status,
// so that no rollout begins. It may be interrupted and repeated.
//
// Guarantees: it begins only when no session of the fleet lives, and prevents dead sessions from
// resuming, or for one namespace when the fleet has released the Leases there; the Leases are
// released last. Not guaranteed: that a fleet that is started again meanwhile does nothing.
package handback
