// Package groups decides what the fleet answers to the cluster-autoscaler about the
// MachineDeployments of one namespace, and what it writes for a call. It is pure: a Namespace is
// what was read, and Increase, Decrease and Delete return the MachineDeployment to write.
//
// A node group is a MachineDeployment with v1alpha1.AnnotationMaxSize, and its ID is the name. An
// instance is a Machine. Its ID is the provider ID of its VM, which its Node has, too, or, while no
// VM is known, Requested and the name of the Machine.
//
// Guarantees, tested with generated worlds:
//
//   - Sizes stay within the limits of the group, regardless of what a call requests.
//   - A call either has its whole effect, in one write of the MachineDeployment, or none.
//   - Delete decreases the replicas by exactly the Machines that it names, and names none twice: a
//     call that is repeated changes nothing, as long as the MachineDeployment was read before the
//     Machines.
//   - Decrease names only Machines that were never a Node as far as the Machine shows, and no more
//     than it takes from the replicas.
//   - Nothing is deleted that has to stay: preserved Machines, those of a rollout, and any while
//     deletions are held. A Machine that runs is deleted by the name of its Node only.
//   - A Node or Machine that belongs to another group is never part of an answer or of a write.
//
// Not guaranteed: that what was read is current. The caller writes under the resourceVersion of
// what was read, and so a decision on an older MachineDeployment has no effect. Nor that a Machine
// which Decrease takes from those that are still to be created is not created at that moment: then
// the fleet deletes the least useful one.
package groups
