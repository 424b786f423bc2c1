// Package preserve decides whether a machine is preserved: kept although it has failed, and
// protected from the cluster-autoscaler, for inspection. It is pure: Decide is a function from
// machine, Node and time to the machine and Node to be written.
//
// The annotation preserve requests it, on the Machine or on its Node. The annotation of the Node,
// or the last one that was seen there, has precedence; it is recorded on the Machine, so that
// controllers that see only Machines, as that of MachineSets, know it as well, and so that it
// outlives the Node.
//
//	value            keeps the machine                        until
//	now              in every phase                           its time is over
//	when-failed      while it has failed                      its time is over, or it recovers
//	auto-preserved   while it has failed; set by MachineSets  its time is over, or it recovers
//	false, ""        never
//	anything else    as before                                its time is over
//
// A machine is preserved while status.currentStatus.preserveExpiryTime is in the future. Its Node
// has the condition Preserved, an annotation for the autoscaler, and, if the machine has failed, a
// taint, and is drained. The order of the writes has the progress readable from the objects:
//
//   - The expiry time is set first, in the same write as the phase Failed, and cleared last. So a
//     MachineSet never sees a failed machine whose preservation was requested and has not begun.
//   - The taint is added only while the condition is not True, and the condition becomes True with
//     the taint only when the drain has ended. So a failed machine whose Node has both has been
//     drained.
//   - While a machine stays failed, an expiry time in the past is kept: its time must not begin
//     again.
//   - The timeout that counts is that of the time at which the preservation begins. Only a user,
//     and a time since then in which nothing could be done, change an expiry time that was written.
//
// Not guaranteed: that a preserved machine is kept when it is deleted, when its Node is deleted, or
// when a MachineSet is scaled below the number of preserved machines.
package preserve
