// Package shard says what this replica may do, and holds it to that: it runs the protocol of shard/protocol, and stands with
// a Fence under every client and every driver.
//
// The parts, from the outside in:
//
//   - Gate admits a key to a runner while its slot is held and open, and hands out the ownership in the context.
//   - Fence checks that ownership again immediately before each mutating request and each call of a driver, counts what
//     is in flight, and puts the ownership into the User-Agent.
//   - Replica is the loop: it feeds the machine of shard/protocol with Leases, answers and time, sends its requests, and
//     keeps the Fence as the machine says.
//
// Guarantees:
//
//   - Nothing that changes anything is begun without an ownership that holds at that moment. Exempt are Events and
//     reviews of access, which change nothing that anybody decides on.
//   - A slot is reported idle only when every admitted pass has ended, every request's body is closed, and every call of
//     a driver has returned.
//   - The fence counts from before the send of the renewal that moved it, never from its answer.
//
// Not guaranteed: that a request which was begun in time also arrives in time. A process can be stopped between the check
// and the send, and a request can outlive its sender. The controllers make that harmless.
package shard
