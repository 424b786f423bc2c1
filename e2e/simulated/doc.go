// Package simulated is the driver of the simulated cloud (e2e/lab/cloudsim). It is a driver like
// any other: it knows the cloud's HTTP API, in package cloudapi, and nothing of how the cloud
// works.
//
// How machines and VMs belong together:
//
//   - A VM has the name of its Machine, and so has its Node.
//   - The Machine's UID is the client token of its create, and a tag. A create, answered or not,
//     once or repeatedly, leaves one VM. As long as the cloud has the record of an ended VM, its
//     Machine gets no second one.
//   - A VM without that tag is not the Machine's, regardless of the Machine's provider ID: the
//     cloud deletes and changes only what has the tag, and checks that in the same request. With
//     Target.Adopt also VMs without a UID and with the Machine's name and namespace.
//   - A create that failed part-way may have left a network interface and a disk with the same
//     tags. A repeated create uses them, and a delete removes those with the Machine's UID when
//     there is no VM any more.
//   - The namespace of the MachineClass is a tag, too, and the scope of ListMachines: all classes
//     of a namespace show the same VMs.
//   - The ID of the control cluster is a tag as well, where it is known. With the namespace and the
//     Machine's name and UID a sweep lists by it, and a sweep deletes what has the UID and
//     that ID.
//
// Each method sends one request, except where its comment says more, and ListMachines, which sends
// one for each page.
package simulated
