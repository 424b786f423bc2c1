// Package agent is machine-config-daemon: the loop that observes the machine and its Node, has
// package lifecycle decide, and acts.
//
// One goroutine does all of it, so no two transactions, requests and commands overlap; another one
// only receives changes of the Node. What the machine has is in the records of package transaction.
// What is lost with the process is only what repeats: the desired configuration that was read,
// times of back-off, and which commands were run.
//
// An Agent without a cluster applies a configuration once (Once): its report is the result.
package agent
