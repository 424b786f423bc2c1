// Package preload makes machines and Nodes that look as if they had been running for long, without a VM behind them: for
// measurements with more machines than a lab can boot.
//
// Guarantees: the objects are as Machine Controller Manager leaves them, without anything of the fleet's own; a fleet that
// meets them finds every machine running and healthy, and asks no cloud.
// Not guaranteed: that they stay so. Nobody renews the Leases of the Nodes, so the lab's controller manager has to stand
// still before it takes them for lost; and the fleet has to stand still while the objects are made.
package preload
