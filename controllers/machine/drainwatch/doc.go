// Package drainwatch sees what drains depend on, while there are drains: the pods of a Node while that Node is drained,
// and the budgets, claims, volumes, attachments and CSI drivers of a target cluster while any Node there is.
//
// Guarantees: what a Session shows comes from consistent reads that began after it, and is complete before it shows
// anything; whoever drains is woken when something changed that can change what follows, also when something cannot be
// seen any more, and can again; nothing is held, and nothing watched, of a cluster in which nothing is drained.
// Not guaranteed: that a watch is not late. Whoever acts on something missing looks for it first.
package drainwatch
