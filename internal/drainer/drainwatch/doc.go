// Package drainwatch caches the objects that drains depend on, while there are drains: the pods of a Node while that Node is
// drained, and the budgets, claims, volumes, attachments and CSI drivers of a target cluster while any Node there is, and for 10 min after
// that.
//
// Guarantees: the objects that a Session returns come from consistent reads that began after it, and are complete before it
// returns any; a drain is woken after each change that can affect it, also when a kind can no longer be watched, and when it can
// again; nothing is cached or watched of a cluster that has had no drain for 10 min.
// Not guaranteed: that a watch is up to date. A caller that acts on a missing object reads it first.
package drainwatch
