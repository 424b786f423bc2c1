// Package nodeowner decides whether a Node belongs to a Machine. It is pure.
//
// A client that may write Machines in one namespace can write any label, any provider ID and any
// UID of an owner, but can write no Node and no tag of a VM. A client with the credentials of a
// Node's kubelet can write the Node's annotations and most of its labels, but can write no Machine,
// and no other Node. So neither side suffices alone: a Node belongs to a Machine if it is bound to
// the Machine's namespace and UID (v1alpha1.AnnotationMachine), and their complete provider IDs
// name one VM, see driver.SameVM. One form of provider IDs is not complete, see driver.IdenticalVM:
// it never suffices as evidence for a Node that is bound to none.
//
// Guarantees, each a row of the test:
//
//   - A Node that is bound to a Machine of another namespace or name never belongs to this Machine,
//     regardless of what this Machine states.
//   - A Node without a provider ID that is tied to no machine belongs to no machine.
//   - A Node that is bound to none belongs to a Machine only with evidence that the Machine's
//     author cannot write: the UID on the VM, or the name on the Node together with the absence of
//     another Machine of that name that has an older claim. No edit of a Machine of another name
//     prevents a Node from belonging to the Machine whose name it carries.
package nodeowner
