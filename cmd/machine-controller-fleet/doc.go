// Command machine-controller-fleet is one replica of the fleet: it creates machines at a cloud,
// follows them as Nodes, and removes them again, according to the MachineDeployments, MachineSets
// and Machines of the control cluster.
//
// It reads its flags, connects, wires the controllers, and runs one session of the replica. On
// SIGTERM or SIGINT it hands over its slots and exits 0. It exits 1 when it cannot start and when
// its session has ended, to be started again as another session, and 2 for wrong flags.
//
// Its commands do something else, and end: leave gives the machines of a stopped fleet back to
// Machine Controller Manager, version prints what the binary was built from, and completion what a
// shell needs to complete commands and flags. They exit 1 when they fail, and 2 for wrong flags.
package main
