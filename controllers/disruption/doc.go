// Package brake decides which machines may be replaced. A fault of many machines must not become their replacement: what
// is wrong is then mostly not the machines, and they come back. It is pure.
//
// There are two brakes. The first is for each root, a MachineDeployment or a MachineSet without a controller: Decide gives
// permits, and only so many machines of a root are on their way out or in at a time. A permit is an intent. It is noted on
// the root before the machine is given up, and no machine is replaced without one.
//
// The second is for zones and target clusters. Replicas tell each other how many machines are Ready and how many are not;
// Sum adds that up, and Halts knows where too many are not, and since when few enough are not. No machine that is halted
// gets a permit for its health. The machines of one namespace halt no others.
//
// A machine that never became a healthy Node carries nothing that could be lost, and counts in no zone: that it cannot come
// up says nothing of those that run. Its replacement needs a permit, too, which is given at once, unless many of a root do
// not come up. Then they are tried one after the other until one does, in a halted zone as well: a cloud that is broken is
// not asked for hundreds of VMs, and neither is the end of the trouble missed.
//
// Guarantees, each of them tested with generated worlds:
//
//   - Of a root never more machines are being replaced for their health than its limit allows, whatever is late, whoever
//     owns it, and wherever a process ends.
//   - Nothing is given up for its health before somebody has counted the machines of every slot.
//   - What is halted stays so until it has been seen well for the time that it takes, also by a new owner.
//
// Not guaranteed: that a count is of this moment. What others tell is up to some 12 s old, and a replica that is absent
// counts with its last word until somebody has counted its slots anew.
package disruption
