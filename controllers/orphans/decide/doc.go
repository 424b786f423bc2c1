// Package decide decides which resources at a cloud belong to no Machine any more and may be
// deleted. It is the pure core of the sweep in controllers/orphans: values in, a verdict out.
//
// A resource is deleted in two phases, in two sweeps. It is suspected when a complete list of the
// cloud has it, and a complete list of the namespace's Machines has no Machine with the UID that it
// is tagged with. Suspicions are kept in a Record on a MachineClass, with their age. A later sweep
// confirms a suspicion that is old enough, with new live reads (Confirm). A Ledger limits how many
// are deleted in an hour, whichever replica leads.
//
// Guarantees:
//
//   - A resource is deletable only if every read that its Facts are based on succeeded, and no
//     Machine has its UID or its provider ID.
//   - The age of a suspicion is the time that leaders have observed it for, each by its own clock.
//     Time between two leaders, and times that another process recorded, do not count.
//   - A suspicion ends when its resource is listed no more, or its Machine exists. It begins anew
//     at age 0.
//   - Where more resources are confirmed than the limit allows, none of them is deleted without an
//     approval, which names exactly these.
//   - Records and Ledgers are bounded in size. Content that does not decode is no suspicion, and no
//     permission.
//
// Not guaranteed: that a suspicion outlives its MachineClass, or a change of the scope of the
// class. It begins again.
package decide
