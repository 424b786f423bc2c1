// Package preserve decides whether a machine is preserved: kept although it has failed, and kept from the
// cluster-autoscaler, for people to look at it. It is pure: Decide is a function from machine, Node and time to what both
// should carry.
//
// The annotation preserve asks for it, on the Machine or on its Node. A Node that has it, or had it when it was last
// looked at, has the say; its value is noted on the Machine, so that whoever sees Machines only, as MachineSets do, knows
// it as well, and so that it outlives the Node.
//
//	value            keeps the machine                        until
//	now              in every phase                           its time is over
//	when-failed      while it has failed                      its time is over, or it recovers
//	auto-preserved   while it has failed; set by MachineSets  its time is over, or it recovers
//	false, ""        never
//	anything else    as it was before                         its time is over
//
// A machine is preserved while status.currentStatus.preserveExpiryTime is set and has not come. Its Node has the
// condition Preserved, keeps the autoscaler away, and, if the machine has failed, carries a taint and is drained. The order
// of the writes makes each state of the objects tell how far it has come:
//
//   - The expiry time is set first, with the phase Failed in the same write, and cleared last. So a MachineSet never sees a
//     failed machine that is to be preserved and is not.
//   - The taint is put on only while the condition is not True, and the condition becomes True under the taint only when the
//     drain has ended. So a failed machine whose Node has both has been drained.
//   - While a machine stays failed, an expiry time that has come stays: its time is not to begin anew.
//
// Not guaranteed: that a preserved machine stays when it is deleted, when its Node is, or when a MachineSet has to go below
// the number of those that are preserved.
package preserve
