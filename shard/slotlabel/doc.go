// Package slotlabel writes the slot label of objects without one: objects that were created by
// users, by a restore or by Machine Controller Manager, and objects whose label was edited.
// shard/slotlabel/policy decides what is written.
//
// A Watch follows the metadata of all unlabeled objects. A Labeler has them labeled by the holder
// of their slot, a whole tree at a time, and offers orphans to parents before it labels them as
// roots. An Admission keeps controllers from reconciling a root whose tree does not fit yet, and an
// object that is handed over to another slot.
//
// Guarantees:
//
//   - Labels are written bottom-up, after a live read of the namespace, each with UID and
//     resourceVersion (a Node's with its UID), under the ownership of the slot that the write
//     belongs to, at a limited pace.
//   - Slots share the reads of a namespace. Few namespaces are read at a time, and of each one page
//     of a kind, bounded in bytes.
//   - A valid label is changed only by the holder of the slot that it names, while no pass of the
//     object runs.
//   - Of Nodes and other unlabeled objects only names, labels that refer to a machine, and owners
//     are stored.
//
// Not guaranteed: a time limit. A tree that the caches show in part is checked again until it fits.
package slotlabel
