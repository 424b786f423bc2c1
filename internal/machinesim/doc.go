// Package machinesim runs the code that decides about machines, sets and remediation together, on a
// simulated clock, cloud and API server: lifecycle, scale and remediation are the real ones.
//
// Processes own trees of machines, each with late caches, its own clock, and counts that it reports
// to the others. They die at any point, their trees are handed over, and a write that one of them
// was about to send takes effect long after. The API server rejects a write that was decided on an
// old object, and the cloud creates VMs that become Nodes.
//
// Guarantees: a run is determined by its seed. Not guaranteed: anything about the code that sends
// requests to a real API server; the end-to-end tests cover that.
package machinesim
