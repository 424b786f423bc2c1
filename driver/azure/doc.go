// Package azure is the driver of Azure.
//
// How machines and VMs belong together:
//
//   - A VM has the name of its Machine, and so has its Node. Where a VM of another Machine has that
//     name already, a hash of the Machine's UID is added. Network interface and disks have names
//     that begin with that of the VM: the names of Machine Controller Manager.
//   - The Machine's UID is a tag of the VM, the network interface and the disks, from the request
//     that creates them. Disks that are created with a VM get the tags of the VM from the cloud.
//   - The provider ID is the one that cloud-provider-azure gives the Node, with subscription and
//     resource group. The one of Machine Controller Manager, azure:///<location>/<name>, is
//     understood.
//   - A VM without the tag is not the Machine's, regardless of what the Machine's provider ID is.
//     With Target.Adopt one that Machine Controller Manager has created is, too: it has the
//     Machine's name, no UID, and the tags of the class' cluster.
//
// The cloud checks no tags when it deletes: they are read immediately before. VMs are created under
// the condition that there is none.
//
// What the SDK does and what it does not: its clients and credentials are used, and a transport of
// package httpclient, so that requests go to the configured endpoints only and answers are bounded.
// Its retries, its polling of operations and its registration of resource providers are not used,
// because each would hold a worker of the fleet.
//
// Limits of requests are those of a subscription, which other replicas use, too. The cloud reports
// with its answers what is left, and a request that it would refuse is not sent, see Rates.
package azure
