// Package simkubelet simulates the kubelets of VMs, thousands of them in one process.
//
// A VM joins with three requests: one authenticated by its bootstrap token, which proves that the
// token works, and then, with credentials of this process, one that creates the Node, Ready from
// the start, and one that creates its Lease. After that it costs a Lease renewal every 25 s and a
// status report every 5 min, regardless of its pods.
//
// Pods that are bound to its Nodes, those of DaemonSets and mirror pods too, become Running and
// Ready at once, and end within the time that the cloud sets. No container is run. A container
// never exits by itself, readiness gates are not checked, and a pod's address is derived from its
// UID.
//
// It also simulates the agent that updates Nodes in place: when a Node is marked as ready for that,
// it becomes not Ready for the time that the cloud sets, like one that restarts, becomes Ready
// again, and gets the result that the cloud sets. Later it removes the taint of critical
// components, as another controller does.
//
// With Config.Daemons it plays the machine-config-daemon, too: for the configuration that is
// desired for a Node it sends the same reports as the real one, by the same decisions (package
// lifecycle), waits for the drain, and is not Ready for the time that the cloud sets for a reboot.
// It reads no configuration, and each one works.
//
// Like a kubelet it registers a Node once: a Node that is deleted is not created again, and a Node
// that exists already is taken over, regardless of its previous VM, and everything but its provider
// ID is updated. The end of a VM ends the reports, and nothing else: its Node stays until a client
// deletes it.
package simkubelet
