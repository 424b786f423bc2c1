// Package scale decides which machines a MachineSet creates and which it deletes. It is pure:
// Decide is a function from observations (a World) to actions (a Verdict).
//
// A decision that must not be taken twice is an intent: it is written on the set, with the set's
// resourceVersion, before its effects begin, and removed when the effects are observed. A machine
// counts from its intent on, so a cache that does not have it yet, or still has it, changes no
// number: however stale the cache, there are never more machines than desired, and never fewer. A
// holder that finds an intent completes it before it decides anything else.
//
// Before machines are recorded for creation, or for deletion because they are too many or were
// named by the cluster-autoscaler, the API server is read: its answer has precedence over the
// cache.
//
// A machine's name is derived from the set's UID and an ordinal that is never used again in the
// set's life, so the same intent, executed twice, creates one machine.
//
// Guarantees, tested with generated worlds: with no decision do counted machines exceed
// spec.replicas, or fall below it; a preserved machine is deleted last; a frozen set creates no
// machines and replaces none; the finalizer is removed only after a live list has returned no
// machine.
package scale
