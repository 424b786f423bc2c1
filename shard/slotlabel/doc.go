// Package strays sees to the slot label of what has none: objects that users, a restore or Machine Controller Manager
// have made, and objects whose label was edited. What to write is decided in shard/slotlabel/policy.
//
// A Watch follows the metadata of all objects that are in no slot. A Labeler has them labelled by the holder of their
// slot, a whole tree at a time, and offers orphans to parents before it makes roots of them. Doors keep a controller from
// a root whose tree does not fit yet, and from an object that is being given to another slot.
//
// Guarantees:
//
//   - Labels are written bottom-up, after a live read of the namespace, each with UID and resourceVersion (a Node's with
//     its UID), under the ownership of the slot that the write belongs to, at a limited pace.
//   - A valid label is changed only by the holder of the slot that it names, while no pass of that object runs.
//   - Of Nodes and other objects without a slot nothing is kept but names, labels that lead to a machine, and owners.
//
// Not guaranteed: a time. What the caches do not show together is looked at again until it fits.
package slotlabel
