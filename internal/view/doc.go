// Package view computes what people see of a fleet from the objects of its clusters: trees of
// MachineDeployments, the state of rollouts, what a machine waits for, the holders of slots, and
// what blocks a drain. It is pure: a Snapshot of plain objects with the time in it is the input,
// and a view with plain fields, which is also its JSON form, the result.
//
// What a controller decides is not decided here once more: facts about machines are those of
// machinefacts, which set has the current template is decided by rollout, and which budgets hold a
// pod by drain.
//
// Guarantees: equal snapshots result in equal views, in a fixed order. What could not be read is in
// Missing of the view, with the right that it needs, and never looks like an absence of objects.
//
// Not guaranteed: that objects of a snapshot are of the same moment, or that the clock of the
// reader agrees with those of the fleet. Ages and silences are differences of the two.
package view
