// Package session runs one session of a replica: the loop around the protocol, and the election of
// the leader.
//
// Replica is the loop: it passes Leases, answers and time to the state machine of
// shard/session/protocol, sends its requests, and updates the Fence of shard/fence as the protocol
// decides. Every step of the protocol runs in this one goroutine; the watch, the election and the
// answers of the API server put letters into its mailbox.
//
// Guarantees:
//
//   - The fence counts from before the send of the renewal that moved it, never from the answer.
//   - In each step, work that has to end is stopped before the requests of that step are sent.
//   - A session that cannot observe the fleet is no candidate in the election of the leader.
//
// Not guaranteed: that a slot is served. Slots without a holder and replicas that cannot do their
// work are reported.
package session
