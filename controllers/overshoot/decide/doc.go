// Package decide decides which MachineSets are frozen because machines are created beyond what was
// ordered, and which freezes end. It is pure: a Counter is filled with what was read of one
// namespace, and returns verdicts and the Count for the next comparison.
//
// A number of machines above the replicas is no evidence: it follows from every scale-down until
// the deletions have begun. What no legitimate transition does is to create a machine while there
// are too many already. So machines are counted twice, one period apart, and a MachineSet
// overshoots when
//
//   - both counts are above the limit: its replicas and Limits.Up,
//   - its generation is the same in both, so that its size has not changed in between, not even for
//     a moment, and
//   - it has a machine at the second count that was created after the first one, and whose ordinal
//     was not recorded for creation then.
//
// A MachineDeployment overshoots in the same way, by the machines of all of its sets and its
// replicas with the surge. It has no its own machines: frozen are those of its sets that have
// created such a machine and were enlarged since the first count. A set that replaces a failed
// machine within an unchanged size has not overshot for it.
//
// A MachineSet whose machines lose their labels to another client has no more machines than
// ordered: it releases them, and creates others in their place, without end. So the machines that
// it has released and that still exist are counted, too. A MachineSet drifts when there are more of
// them than Limits.Up, more than in an earlier count of the same generation, and it has created a
// machine since. The freeze ends when no more of them than Limits.Up are left. They count for no
// MachineDeployment: a rollout is not frozen for them.
//
// Machines that are being deleted, and those recorded on their set for deletion, do not count. A
// machine that was updated in place and transferred to another set counts for its
// MachineDeployment, and not for its set, whose size follows.
//
// Guarantees, tested with generated worlds: a rollout, Recreate, update in place or scale-down is
// never frozen, with restarts, late caches and late writes; a set that keeps creating beyond its
// size is frozen at the second count that shows it. The end of a freeze by a user is not undone
// until another machine has been created beyond the limit. A freeze that another client has set is
// not ended.
//
// Not guaranteed: that a single excess creation is noticed; its set deletes the machine. VMs beyond
// the machines are not counted here: these are orphans or duplicates, which the search for orphan
// VMs finds.
package decide
