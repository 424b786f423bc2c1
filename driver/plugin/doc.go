// Package plugin connects the fleet with drivers in their own processes, over gRPC on a unix
// socket.
//
// Serve serves any driver.Driver, and its driver.Sweeper if it has one. Dial returns a Client,
// which is such a Driver and Sweeper for the fleet. What the contract in package driver guarantees
// holds through both of them: the codes of errors with retry-after and cause, answers together with
// errors, deadlines and cancellation. docs/drivers/protocol.md has the protocol, which is in
// v1/driver.proto.
//
// Guarantees of a Client, regardless of what the driver's process does:
//
//   - A call returns when its context ends. Without a connection it fails at once with
//     driver.Unavailable: connections are opened outside of the calls, with a back-off.
//
//   - That the process did not answer never counts as an answer: its status of gRPC never becomes
//     NotFound, Unimplemented, Uninitialized or ResourceExhausted. Only a failure that the driver
//     itself has reported does.
//
//   - What is read is bounded: the size of a message and of metadata, the pages of a list, and what
//     the transport buffers.
//
//   - A process that has no version of the protocol in common, or is for another provider, is
//     refused: each call fails with driver.FailedPrecondition, and names both sides.
//
// Guarantees of a Server:
//
//   - Secrets of a request are not in its answer, see driver.Redacted.
//
//   - A panic of the driver ends the call that it was in, and no other.
//
//   - Each call of the driver has a deadline, and its context ends with the fleet's call, or with
//     the connection.
//
// Not guaranteed: that the answers are true or sensible. The fleet checks those of all drivers, see
// driver.Checked. The socket is not encrypted, and its access is that of its folder: each process
// that can write there gets credentials of the cloud.
package plugin
