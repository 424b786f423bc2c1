// Package bridge turns a driver of Machine Controller Manager (MCM) into a driver of this fleet:
// any implementation of its driver.Driver, unchanged. A main of ten lines serves it in a separate
// process, see Serve.
//
// What the bridge adds:
//
//   - A create looks for the Machine's VM first, and again each time that it is repeated: a driver
//     without idempotency tokens creates a second VM when its create is repeated. While it is not
//     known whether there is a VM, none is created.
//
//   - Calls that wait are bounded: MCM's drivers wait for the cloud, some for 15 minutes. The
//     bridge answers after Options.AnswerAfter that the call is under way, and is asked again. One
//     call that changes something is under way for a Machine.
//
//   - MCM's codes become those of this fleet, which are the same. The texts of errors are not read.
//
//   - The driver gets no provider ID that a client has written, see Options.PassProviderID.
//
//   - A VM has the provider ID that its Node gets, see Options.ProviderID: some of MCM's drivers
//     return another one.
//
//   - The Machine's UID becomes a tag of its VM where the provider spec has tags, see
//     Options.TagField.
//
// What remains, and why:
//
//   - MCM's drivers do not report tags, so that nothing proves that a VM of the Machine's name is
//     the Machine's. A VM that has that name, in the scope of the class, is taken for the
//     Machine's: two namespaces with classes of the same tags in one account are not distinguished.
//     Use an account, a resource group or different tags for each namespace.
//
//   - A VM that its cloud does not show yet is not found. If the process ends between the create
//     and that moment, the next create creates a second VM, unless the names of VMs are unique at
//     the cloud (Azure, Google). GetMachineStatus then reports OutOfRange where the driver notices
//     it.
//
//   - A create that is under way is not in flight for the fleet between two calls: a hand-over does
//     not wait for it. A call that is cancelled cancels it.
//
//   - There is no Sweeper: VMs and left-overs without a Machine are not found.
//
//   - A driver without GetMachineStatus (OpenStack's) is asked for a list instead before a create.
//     Its VMs give no evidence about Nodes.
package bridge
