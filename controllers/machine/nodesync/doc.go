// Package nodesync decides what the Node of a machine carries: what ties it to the machine, and what the machine's
// nodeTemplate and its class' virtualCapacity ask for. It is pure: Wanted.Apply makes of a Node the Node that is wanted,
// and Diff makes of the two the requests that lead from one to the other.
//
// Labels, annotations, taints and virtual capacity are merged three ways: what was asked for last, what is asked for now,
// and what the Node carries. What was asked for last is noted on the Node, under the keys and in the form of Machine
// Controller Manager, so that either can go on where the other has stopped. A kubelet can write that note. So it is believed
// only of what the kubelet can change without it; of taints and restricted labels the Machine says what was asked for last
// (Applied), which is written before they are put on the Node.
//
// Guarantees, tested with generated worlds:
//
//   - What was not asked for, now or last, is never touched, whichever client has put it there. Nor is a taint or a restricted
//     label that was there before it was asked for (Applied.Asked).
//   - What is asked for is there in the end, and what is not asked for any more is gone, wherever the process dies between
//     two requests: what is to be put on the Node is noted with it or before it, and struck off with it or after it.
//   - A Node that is as it should be is not written, and a Node that was never written gets all of its metadata, spec and
//     finalizer in one request. Virtual capacity is part of the Node's status, and is another.
//
// Not guaranteed: that other clients leave unchanged what is asked for. It is put back.
package nodesync
