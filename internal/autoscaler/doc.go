// Package autoscaler serves the cluster-autoscaler's protocol externalgrpc: it authenticates
// clients, reads the namespace that a client is for, answers calls from what was read, and writes
// what package groups decides.
//
// A client is one of the namespace that its certificate names, and of no other. Whether it may
// scale there, the control cluster's RBAC decides (v1alpha1.VerbAutoscale).
//
// Every replica answers for every namespace of the fleet, and owns nothing for it: state is on the
// objects. A call that changes something reads the MachineDeployment, and then the Machines that it
// is about, from the API server, and writes one patch under the resourceVersion that it has read.
// So a call that is repeated, at another replica, too, changes nothing twice, with one exception
// that is part of the protocol: an increase has no identity, and one that is repeated increases
// twice.
//
// Other answers are those of a snapshot of the namespace, which is at most as old as maxAge, and
// taken for each Refresh. A snapshot consists of lists that are as new as their request, so that a
// client which changes the replica observes what it has changed.
//
// Guarantees:
//
//   - A client reads and changes nothing outside its namespace.
//   - Calls, their requests, snapshots and reviews are bounded, for each namespace and for all. A
//     request is read when its client is known and may scale, and its size and fields are bounded.
//   - A call ends maxCall after its headers, whether its request has arrived or not.
//   - A call has an effect or an error. After an error it may have had its effect.
//
// Not guaranteed: that a client that loses its access is refused at once. An answer of the API
// server is valid for a minute, and for ten while it does not answer. Nor is a bound of the number
// of connections.
package autoscaler
