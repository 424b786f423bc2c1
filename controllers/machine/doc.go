// Package machine is the controller of Machines: it carries out what lifecycle decides.
//
// A pass observes one machine with its class, Secrets, Node and, where needed, VM. It calls
// lifecycle.Decide for the next action, carries it out, and calls lifecycle.Decide again, until the
// action is Rest. This package sends all reads and writes of a pass, and lifecycle all decisions.
//
// Guarantees: a machine is only written with the resourceVersion that was decided on; a Node only
// with its UID; no worker waits for a VM to boot, to join or to be deleted. Not guaranteed: that a
// bootstrap token is used only by its VM. Each process that can read the user data can use the
// token.
package machine
