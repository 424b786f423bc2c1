// Package simkubelet plays the kubelets of simulated VMs, thousands of them in one process.
//
// A VM joins with three requests: one authenticated by its bootstrap token, which proves that the token works, and then,
// with credentials of this process, one that creates the Node, Ready from the start, and one that creates its Lease.
// After that it costs a Lease renewal every 25 s and a status report every 5 min, whatever runs on it.
//
// Pods that are bound to its Nodes, those of DaemonSets and mirror pods too, become Running and Ready at once, and end
// within the time that the cloud sets. Nobody runs anything. A container never exits by itself, readiness gates are not
// looked at, and a pod's address is made up of its UID.
//
// It also plays the agent that updates Nodes in place. When a Node says that it is ready for that, the Node is not Ready for the
// time that the cloud sets, as one that restarts, comes back, and gets the result that the cloud sets; and, later, whoever finds
// its critical components ready.
//
// Like a kubelet it registers a Node once: a Node that is deleted does not come back, and a Node that exists already is
// taken over, whichever VM it belonged to, with everything but its provider ID brought up to date. The end of a VM ends
// the reports, and nothing else: its Node stays until somebody deletes it.
package simkubelet
