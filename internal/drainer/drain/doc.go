// Package drain decides how a Node is emptied before its VM is deleted or updated in place. It is
// pure: Decide is a function from observations (Facts) to the next actions (a Verdict), with the
// time as a value, and without access to a cluster.
//
// Pods without volumes are evicted at once, those of high priority first. Pods with volumes follow
// one another: while the maximum number of the Node's volumes is moving, the next one waits. A
// volume moves from the eviction of its pod until it is detached and, if a controller creates the
// pod anew, attached to another Node. Pods of DaemonSets and mirror pods stay.
//
// A drain ends in one of two ways. Drained: a live read shows that no pod is left that had to
// leave, and no volume of one is attached any more. GivenUp: the timeout has passed, the Node has
// been unhealthy for too long, a forced deletion was requested, or a volume did not detach; then
// pods are deleted without grace, attachments are deleted, and what is not removed in time ends
// with the VM.
//
// Guarantees, each of them tested with generated worlds:
//
//   - Every holder that continues a drain decides the same from the same objects. What is only in
//     memory (when an eviction was refused, since when a volume is idle) costs time when it is
//     lost, and nothing else.
//   - A drain whose timeout passed before all pods had left is never Drained.
//   - Every drain ends: at most a few minutes after its timeout.
//   - The status of several budgets for one pod is trusted only after they were counted for this
//     drain.
//   - A pod is deleted without grace only when the drain is forced, or when it could not be evicted
//     for as long as its machine allows.
//
// Not guaranteed: that nothing new is bound to a cordoned Node. Pods that tolerate the cordon may
// be created again.
package drain
