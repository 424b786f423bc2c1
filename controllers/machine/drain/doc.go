// Package drain decides how a Node is emptied before its VM goes, or is updated in place. It is pure: Decide is a function
// from what was observed (Facts) to what to do now (a Verdict), with the time as a value, and it knows no cluster.
//
// Pods without volumes are evicted at once, those of high priority first. Pods with volumes follow one another: while as
// many volumes of the Node move as may, the next one waits. A volume moves from the eviction of its pod until it is
// detached and, where something makes the pod anew, attached elsewhere. Pods of DaemonSets and mirror pods stay.
//
// A drain ends in one of two ways. Drained: nothing that had to leave is left, by a read past all caches, and no volume of
// it is attached any more. GivenUp: the time was over, the Node has been unhealthy for long, somebody wanted it at once,
// or a volume did not detach; then pods are deleted without grace, attachments are deleted, and what does not go in time
// is left to end with the VM.
//
// Guarantees, each of them tested with generated worlds:
//
//   - Whoever goes on with a drain decides the same from the same objects. What only memory can know (when an eviction was
//     refused, since when a volume is idle) costs time when it is lost, and nothing else.
//   - A drain whose time was over before all had left is never Drained.
//   - Every drain ends: at the latest some minutes after its time is over.
//   - What several budgets say of one pod is believed only after they were counted for this drain.
//   - A pod is deleted without grace only when the drain is forced, or when it could not be evicted for as long as its
//     machine allows.
//
// Not guaranteed: that nothing new is bound to a Node that was cordoned. What tolerates the cordon comes back.
package drain
