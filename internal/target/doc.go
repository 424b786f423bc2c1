// Package target connects the fleet to target clusters: those where the VMs join as Nodes.
//
// A Resolver returns which target cluster a namespace of the control cluster belongs to. All that
// the controllers read or write in a target cluster goes through the Cluster that they get from it.
//
// Not guaranteed: that a Cluster's Nodes are complete or current. A Node that is missing may exist;
// only a live read proves absence.
package target
