// Package disruption decides which machines may be replaced. A fault of many machines must not
// cause the replacement of all of them: mostly its cause is not the machines, and they recover. It
// is pure.
//
// There are two limits. The first is for each root, a MachineDeployment or a MachineSet without a
// controller: Decide returns disruptions, and only a limited number of a root's machines is being
// deleted or created at a time. A disruption is an intent. It is recorded on the root before the
// machine is replaced, and no machine is replaced without one.
//
// The second is for zones and target clusters. Replicas report to each other how many machines are
// Ready and how many are not; Sum adds the reports up, and Breakers records where too many are not
// Ready, and since when few enough are. No machine in a scope with an open circuit breaker gets a
// disruption for its health, until it should have had one for Thresholds.TryAfter: then one machine
// of a root after the other does. The machines of one namespace open no circuit breaker for others.
//
// A machine that never became a healthy Node has no state that could be lost, and counts in no
// zone: that it does not become healthy is no evidence about running machines. Its replacement
// needs a disruption, too, which is recorded at once, unless many machines of a root fail in this
// way. Then they are tried one after the other until one becomes healthy, also in a zone with an
// open circuit breaker: a broken cloud does not get requests for hundreds of VMs, and its recovery
// is noticed.
//
// Guarantees, each of them tested with generated worlds:
//
//   - The number of machines of a root that are being replaced for their health never exceeds its
//     limit, also if anything is delayed, whichever replica holds it, and wherever a process ends.
//   - No machine is replaced for its health before the machines of every slot have been counted.
//   - A circuit breaker stays open until few enough machines have not been Ready for the required
//     time, also after a hand-over.
//
// Not guaranteed: that a count is current. Reports of others are up to about 12 s old, and the last
// report of an absent replica is used until its slots have been counted again.
package disruption
