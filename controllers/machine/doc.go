// Package machine is the controller of Machines: it carries out what lifecycle decides.
//
// A pass observes one machine with its class, secrets, Node and, where needed, VM, asks lifecycle.Decide for the next
// action, carries it out, and asks again until it may rest. All reads and writes of a pass are here; all decisions are
// there.
//
// Guarantees: a machine is only ever written with the resourceVersion that was decided on; a Node only with its UID; no
// worker waits for a VM to boot, to join or to end.
// Not guaranteed: that a bootstrap token is used only by its VM. Whoever reads the user data has it.
package machine
