// Package replica wires one replica of the fleet: clients, session, caches, controllers, and the
// links between controllers. New returns it, and Run runs one session of it.
//
// Guarantees:
//
//   - All requests of its controllers go through the Fence: none is sent while the replica may not
//     act.
//   - Run ends after the slots have been handed over, and with an error when the session has ended
//     by itself.
//   - Nothing of it runs when Run has returned.
//
// Not guaranteed: that a second session can be run in the same process. The process ends with its
// session.
package replica
