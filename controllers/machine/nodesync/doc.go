// Package nodesync decides what the fleet writes to the Node of a machine: the binding to the
// machine, and the contents of the machine's nodeTemplate and its class' virtualCapacity. It is
// pure: Wanted.Apply returns the desired Node for a Node, and Diff returns the requests that lead
// from one to the other.
//
// Labels, annotations, taints and virtual capacity are merged three ways: the last applied values,
// the desired values, and the values of the Node. The last applied values are recorded on the Node,
// with the keys and in the form of Machine Controller Manager, so that each can continue the
// other's work. A kubelet can write that record. So it is trusted only for what the kubelet can
// change without it; for taints and restricted labels the Machine has the last applied values
// (Applied), which are written before these are added to the Node.
//
// Guarantees, tested with generated worlds:
//
//   - Values that are not desired and were not applied are never changed, whichever client has
//     written them. Nor is a taint or a restricted label that existed before it was desired
//     (Applied.Asked).
//   - Desired values are added eventually, and applied values that are no longer desired are
//     removed, wherever the process dies between two requests: values are recorded with or before
//     their addition, and the record is removed with or after their removal.
//   - A Node in its desired state is not written, and a Node that was never written gets all of its
//     metadata, spec and finalizer in one request. Virtual capacity is part of the Node's status,
//     and needs another.
//
// Not guaranteed: that other clients do not change desired values. They are written again.
package nodesync
