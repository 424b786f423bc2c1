// Package fence permits or refuses the work that this session begins: it is below every client and
// every driver, and checks each mutating request and each call immediately before it is sent.
//
// The parts, from the outside in:
//
//   - Gate admits a key to a runner while its slot is held and open, and returns a context that
//     carries the ownership. Near the fence the key waits for the session's next renewal.
//   - Fence checks that ownership again immediately before each mutating request and each call of a
//     driver, counts what is in flight, and puts the ownership into the User-Agent.
//   - FaultPoint delays what has passed that check, for tests.
//
// The package decides nothing about slots: package session moves the fence, and opens, stops and
// shuts slots, as the protocol decides.
//
// Guarantees:
//
//   - No mutating request and no call of a driver is begun without an ownership that is valid at
//     that moment. Exempt are Events and reviews of access, on which no decision depends, and calls
//     of a driver that only read. A change of a MachineDeployment that a user has requested of this
//     session (ForUser) needs no slot, as if the user had sent it.
//   - A slot is reported idle only when every admitted pass has ended, every request's body is
//     closed, and every call of a driver has returned.
//
// Not guaranteed: that a request which was begun in time also arrives in time. A process can be
// stopped between the check and the send, and a request can outlive its sender. The controllers
// make that harmless.
package fence
