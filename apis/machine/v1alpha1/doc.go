// Package v1alpha1 is the API group machine.sapcloud.io/v1alpha1: the objects with which a user
// requests machines, and every name that the fleet shares with other programs through them.
//
//   - A MachineDeployment keeps a number of machines of one template running and replaces them when
//     the template changes.
//   - A MachineSet keeps a number of machines of one, fixed template running. MachineDeployments
//     create them.
//   - A Machine is one VM at a cloud and the Node that it becomes.
//   - A MachineClass describes how the VM is created: provider, its own spec, and the Secrets with
//     credentials and user data.
//
// The wire format is the one of Gardener's machine-controller-manager (MCM), also where it is odd
// (a MachineSet's conditions are called machineSetCondition). What MCM's objects do not have is
// marked so; MCM's own CustomResourceDefinitions prune such fields, and nothing may depend on them.
//
// Labels, annotations, finalizers, taints, conditions and reasons are in the constants files of
// this package and nowhere else.
//
// # What the definitions check
//
// The CustomResourceDefinitions generated from these types (package crds) reject what MCM would
// accept and then ignore, and what no Go client could decode. Three rules govern them:
//
//   - Everything that works with MCM is accepted. An empty strategy, which MCM ignores, works here.
//   - An object that breaks a rule, because it is older than the rule, can still be scaled,
//     finalized and deleted, and all valid parts of it can be changed. So each rule is on the
//     smallest part that it concerns: the API server reports a violation as a warning only while
//     that part stays as it is (CRD validation ratcheting). That does not cover a rule that
//     compares two parts, or one that may fail to compute; these look at the old object themselves.
//     Nor does it cover required fields and list types; these are as in MCM.
//   - Nothing is defaulted, with one exception: spec.replicas, which the scale subresource must
//     find. What an absent field means is described in its comment, is decided by the controllers,
//     and is never written back.
//
// They need Kubernetes 1.30 (ratcheting is on by default since, and for good since 1.33). Selecting
// machines by class on the server needs 1.31; an older one drops that part of the definition.
//
// Package validation reports what the definitions cannot.
//
// +kubebuilder:object:generate=true
// +groupName=machine.sapcloud.io
package v1alpha1
