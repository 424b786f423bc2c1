// Package join is the controller that joins MachineConfigPools with the MachineDeployments that
// they refer to. Package stamp decides.
//
// Its key is the pool. A pool by reference is in the slot of its MachineDeployment, so that
// MachineDeployment, MachineSets, Machines and Nodes are all known to the replica that reconciles
// it, and no other replica writes them.
//
// Guarantees:
//
//   - Each write is for the observed version only, of the template as of the Node. A crash between
//     two writes is continued by the next pass.
//   - A template is changed only after the pool was read from the API server: a late cache never
//     brings back an older configuration, which would replace machines.
//   - Nothing is polled, but for the time until a failure counts.
//
// A Source provides what new machines boot with: the values of the placeholders of machine
// configuration in user data. Package stamp decides which configuration that is.
//
// Guarantees: the content is that which the name stands for, and belongs to the pool that refers to
// the machine's root. Contents are remembered, because the machines of a MachineSet are created
// together; the name decides the content, so what is remembered is never old. One that is too large
// for any user data is not remembered.
package join
