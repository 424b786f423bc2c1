// Package node lets go of Nodes whose Machine is gone. Our finalizer holds a Node so that its Machine can be taken apart first;
// when somebody has removed the Machine by force, nobody is left who would take the finalizer off, and whoever deletes the
// Node waits for ever.
//
// Guarantees: a Node keeps the finalizer until it is to be deleted, and until live lists of all served namespaces show no
// machine that has its name and none that is named by it. The holder of the Node's slot looks.
//
// Not guaranteed: that a Node without a slot label is let go, nor one that another fleet's machine has in the same target
// cluster: one target cluster belongs to one fleet.
package node
