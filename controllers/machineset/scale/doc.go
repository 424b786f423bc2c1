// Package scale decides which machines a MachineSet makes and which it deletes. It is pure: Decide is a function from
// what was observed (a World) to what to do (a Verdict).
//
// What must not be decided twice is an intent: it is written on the set, with the set's resourceVersion, before its
// effects begin, and struck off when the effects are seen. A machine counts from its intent on, so a cache that does not
// show it yet, or shows it still, changes no number: however stale the cache, there are never more machines than wanted,
// and never fewer. Whoever finds an intent completes it and decides nothing beside it.
//
// Before machines are noted for creation, or for deletion because they are too many or were named by the cluster-autoscaler, the
// API server is asked: what it says goes before the cache.
//
// A machine's name is derived from the set's UID and an ordinal that is never used again in the set's life, so the same
// intent carried out twice makes one machine.
//
// Guarantees, tested with generated worlds: counted machines never exceed spec.replicas by a decision of ours, nor fall below
// it; a preserved machine is deleted last; a frozen set makes none and replaces none; the finalizer goes only after a live list has shown no
// machine.
package scale
