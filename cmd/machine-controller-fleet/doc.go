// Command machine-controller-fleet is one replica of the fleet: it makes machines at a cloud, follows them as Nodes, and
// takes them away again, as the MachineDeployments, MachineSets and Machines of the control cluster say.
//
// It reads its flags, connects, wires the controllers, and runs them until SIGTERM or SIGINT; then it finishes what is in
// work and exits 0. It exits 1 when it cannot start or a watch cannot be set up, and 2 for wrong flags.
package main
