// Package label decides which slot label an object carries, who writes it, and in which order. It is pure: it works on
// metadata that others have read.
//
// A tree is a root and everything below it, down to the Nodes. It fits when every object of it names the slot of its root.
// An object without a label, or with one that no slot has, is a stray: the holder of its root's slot labels it. One that
// names another slot is a misfit: nobody but the holder of the slot that it names may change that, since that is where
// something may be in flight for it. To re-label it is a hand-over of one object. Strays below a misfit are labelled by
// that holder, too: nobody else sees both, and the holder of the root's slot could not know whose they are.
//
// Guarantees: a tree is labelled bottom-up, so that its root, which is reconciled by its label, is last; what fits is
// never written; all holders together complete every tree.
// Not guaranteed: that a tree still is as it was read. Every write carries what was read, and is refused when it is not.
package policy
