// Package driver is the contract between the fleet and a cloud.
//
// A Driver creates, finds and removes the VM of one Machine at a time. The fleet has one Driver for
// each provider name and picks it by MachineClass.provider, so one fleet serves several clouds at
// once.
//
// Guarantees that every driver provides, checked by the conformance suite in drivertest:
//
//   - Every method can be repeated. A create carries the Machine's UID as the cloud's idempotency
//     token and finds an existing VM before it creates one; a delete of nothing succeeds.
//
//   - Every error is an *Error with a Code. What the cloud did not answer is never reported as
//     absent: only a clear "there is none" of the cloud becomes NotFound.
//
//   - Requests go to endpoints that the fleet's flags allow, never to others that a class or Secret
//     names or an answer redirects to. Package httpclient does that, and bounds what is read of an
//     answer, for drivers that speak HTTP.
//
//   - The credentials that are sent are those of one Secret, see Target.
//
//   - A method sends a bounded number of requests and returns when its context ends. It does not
//     wait for a VM to boot or to stop: the fleet calls again.
//
//   - A VM is a Machine's when the cloud reports that it has the Machine's UID: as a tag that the
//     driver sets with the create and that no provider spec can set. Provider ID and name are
//     written by any client that may write the Machine, and prove nothing: a VM that they name and
//     that has not the UID does not exist for that Machine. The one exception is Target.Adopt.
//
// A driver whose cloud can list by tags implements Sweeper, too. Its author has to
//
//   - set four tags with each create, on the VM and on all that a failed create can leave: the
//     Machine's namespace, name and UID, and Target.ControlCluster if it is known. A provider spec
//     must not be able to set them;
//
//   - list by them, in pages. The driver returns an error for a page that it could not read as a
//     whole, and never a part;
//
//   - delete under the UID and the control cluster in one request, where the cloud can check tags
//     in the request that deletes. Where it cannot, the driver reads the tags immediately before;
//
//   - forward Sweeper, and implement Unwrap() Driver, in every wrapper of a driver, see SweeperOf.
//
// A driver should be able to look for VMs. GetMachineStatus may return Unimplemented, and then
// nothing proves that a Node which joins is the Machine's, except to the process that created the
// VM: a machine whose process ends before its Node has joined is replaced, unless the user data has
// the kubelet register the Node with the label node.gardener.cloud/machine-name=<<MACHINE_NAME>>.
//
// A cloud without tags keeps the UID elsewhere: in the VM's metadata, its description or its name.
// Where there is no place for it at all, one account or project is needed for each namespace, since
// the VMs of two namespaces cannot be distinguished: the driver's documentation has to state this,
// and its test sets Env.WithoutTags.
//
// A driver runs in a separate process, see package plugin; a test calls one directly. The contract
// is the same.
//
// The fleet uses no answer of a driver unchecked, see Checked and Error.Message: a cloud may be
// broken, or under the control of an attacker.
//
// Not guaranteed: any order among VMs, and any bound on how old the answer of ListMachines is.
package driver
