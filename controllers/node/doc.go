// Package node removes our finalizer from Nodes whose Machine is gone. The finalizer prevents the
// deletion of a Node before its Machine is deleted. If a client has removed the Machine by force,
// no other controller removes the finalizer from the Node, and its deletion would never end.
//
// Guarantees: a Node keeps the finalizer until it is being deleted, and until live lists of all
// served namespaces show no machine that has its name and none that is named by it. The holder of
// the Node's slot does this.
//
// Not guaranteed: the release of a Node without a slot label, or of one that another fleet's
// machine has in the same target cluster: one target cluster belongs to one fleet.
package node
