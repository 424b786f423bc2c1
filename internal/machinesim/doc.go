// Package simulation runs the code that decides about machines, sets and replacement together, on a made-up clock, cloud and
// API server: lifecycle, scale and brake are the real ones.
//
// Processes own trees of machines, each with caches that are as late as they like, a clock of its own, and counts that they
// tell each other. They die anywhere, their trees are handed over, and a write that one of them was about to send arrives
// long after. The API server refuses what was decided on an old object, and the cloud makes VMs that become Nodes.
//
// Guarantees: a run is determined by its seed. Not guaranteed: anything about what talks to a real API server; the
// end-to-end tests are for that.
package machinesim
