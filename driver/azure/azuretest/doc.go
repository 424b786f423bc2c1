// Package azuretest is a small Azure with state, which answers the requests of the SDK as the real
// one does: the REST API of Azure Resource Manager for VMs, network interfaces, disks, images and
// agreements of the marketplace, subnets and resource groups, queries of Resource Graph, and the
// tokens of Entra ID. A Proxy serves it under Azure's own names, to programs whose endpoints cannot
// be configured.
//
// What it has in common with the real one: operations run in the background and are seen by polling
// and in the state of their resource; a delete of a VM deletes what is marked so; disks that are
// created with a VM get its tags; a network interface or disk that a VM uses cannot be deleted; a
// subscription has a limit of writes, reports what is left and refuses more with 429; lists have
// pages. On request it fails in the ways that clouds fail, loses answers after their effect, and
// cuts connections.
//
// Its time is that of a clock, so that nothing in it waits. It has no goroutines: what is due
// happens at the next request. Bodies and the number of resources are bounded. Command azuresim has
// its VMs boot, in a lab.
//
// Not simulated: virtual networks, subnets and resource groups, which exist regardless of their
// name; the checks of specs that the real one performs; updates of VMs; that the real one answers
// reads from several servers, of which one may be late; the delay of Resource Graph, and its
// language but for a few operators: other queries are rejected.
package azuretest
