// Command machine-controller-fleet is one replica of the fleet: it makes machines at a cloud, follows them as Nodes, and
// takes them away again, as the MachineDeployments, MachineSets and Machines of the control cluster say.
//
// It reads its flags, connects, wires the controllers, and lives one session of the replica. On SIGTERM or SIGINT it hands
// its slots over and exits 0. It exits 1 when it cannot start and when its session has ended, to be started again as
// another session, and 2 for wrong flags.
//
// Its commands do something else, and end: leave gives the machines of a stopped fleet back to Machine Controller Manager,
// version prints what the binary was built from, and completion what a shell needs to complete commands and flags. They exit 1 when they fail, and 2 for wrong flags.
package main
