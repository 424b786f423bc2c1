// Package preload creates machines and Nodes in the state of running ones, without VMs: for
// measurements with more machines than a lab can boot.
//
// Guarantees: the objects are as Machine Controller Manager leaves them, without labels and
// annotations of the fleet; for a fleet every machine is running and healthy, and it calls no
// cloud. Not guaranteed: that they stay so. The Leases of the Nodes are not renewed, so the lab's
// controller manager has to be paused before it declares them lost; and the fleet has to be paused
// while the objects are created.
package preload
