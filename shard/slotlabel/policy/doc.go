// Package policy decides which slot label an object carries, who writes it, and in which order. It
// is pure: its input is metadata that was read before.
//
// A tree is a root and all objects below it, down to the Nodes. It fits when every object of it
// names the slot of its root. An object is unlabeled if it has no label, or one that names no slot:
// the holder of its root's slot labels it. An object is mislabeled if it names another slot: only
// the holder of the slot that it names may change the label, because requests for the object may be
// in flight there. To relabel it is a hand-over of one object. Unlabeled objects below a mislabeled
// one are labeled by that holder, too: no other holder sees both, and the holder of the root's slot
// could not find their root.
//
// Guarantees: a tree is labeled bottom-up, so that its root, which is reconciled by its label, is
// last; an object that fits is never written; all holders together complete every tree. Not
// guaranteed: that a tree still is as it was read. Every write has the version that was read as a
// precondition.
package policy
