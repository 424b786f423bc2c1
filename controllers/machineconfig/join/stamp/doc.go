// Package stamp decides how machine configuration and the machines of a MachineDeployment work
// together. It is pure.
//
//   - Stamp: which RenderedMachineConfig the template of a MachineDeployment names. A change of it
//     is a new template: the strategy of the MachineDeployment updates or replaces machines, within
//     its own limits.
//   - DecideNode: the part of the agent in an update in place. A Node that is ready for its update
//     is assigned what the template of its next MachineSet names, and the report of its daemon
//     becomes the result of the update.
//   - First: which configuration a new machine boots with.
//   - Stand: which machines of a pool do not serve, or will be replaced, for the budget of its
//     Daemon rollout.
//
// # The update in place of a Node
//
//	stage of the Node   its daemon                               written
//	ReadyForUpdate      has another desired configuration        desiredConfig, and the label of the pool
//	ReadyForUpdate      requests a drain                         the answer, at once: the Node is drained
//	ReadyForUpdate      done, and the Node is Ready              update-result=successful
//	ReadyForUpdate      reports a failure for FailAfter          update-result=failed, with the reason
//	UpdateFailed        done after all, and the Node is Ready    update-result=successful
//	UpdateFailed        reports another failure for FailAfter    its reason
//	either of them      any, and the new MachineSet is another   that one as the next MachineSet, and its desiredConfig
//
// Everything else is left to the machine controller and the controller of MachineDeployments: the
// drain, the time that an update may take, the transfer of the machine, and that the Node becomes
// schedulable again.
//
// # Guarantees
//
// A configuration is written on a template, on a Node or into user data only if its name is one of
// the pool that refers to the MachineDeployment: MachineDeployments, MachineSets and Machines are
// written by tenants of their namespace, and what they name is not trusted. All that a decision
// changes on a Node is one write, so that no state between two of them exists.
//
// Not guaranteed: that a Node which reports to be done is. Annotations of a Node are written by its
// kubelet's credentials.
package stamp
