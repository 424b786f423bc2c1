// Package replacement is the controller that lets unhealthy machines be replaced: it carries out what brake decides.
//
// A pass observes one root with the machines below it, and writes on the root what brake.Decide says: permits into an
// annotation, and into the status whether replacement is halted. Whoever works on the machines acts on the permits. Halts
// counts the machines of this process, tells and hears what others have counted, and knows where replacement is halted.
//
// Guarantees: a permit is written with the resourceVersion of the root that it was decided on, before anything follows from
// it; of a root only metadata and status are written.
// Not guaranteed: that the Events tell of every halt. They are told after the status was written, by whoever wrote it.
package remediation
