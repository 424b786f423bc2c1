// Package update is the controller that brings the Nodes of MachineConfigPools to the pools'
// targets. Package candidates decides.
//
// Its key is the pool. It watches the Nodes of its own pools only, by the pool's nodeSelector,
// which the API server evaluates; the Nodes of machines that a pool refers to are in the cache of
// their slot. It assigns configurations, drains Nodes for the daemons on them, with the drains of
// this process (package drainer), and writes the counts and its conditions of the pool.
//
// Guarantees:
//
//   - An assignment, and the beginning of a drain, is decided on the pool and its Nodes as the API
//     server has them at that moment, and is one write with the version of its Node as a
//     precondition. Anything that this process remembers may be lost between any two writes.
//   - A Node that was cordoned before its drain stays cordoned after the update. The record of that
//     is in the write of the cordon.
//   - Nothing is polled: a pass follows an event, a time that a decision depends on, or an error.
//   - A Node gets at most five writes for one update: the taint, the assignment, the cordon, the
//     end of the drain, the end of the cordon.
//
// Not guaranteed: that an assignment which was sent by a former owner of the pool does not arrive
// after the list of the next one. Of two Nodes that are assigned a configuration then, one waits
// with its drain for the other.
package update
