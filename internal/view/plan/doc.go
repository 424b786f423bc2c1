// Package plan computes what a change of an object would do to machines before it is applied. It is
// pure: the objects of a view.Snapshot, the change, and durations are the input, and a Plan with
// plain fields, which is also its JSON form, the result.
//
// A plan is the record of a simulation. The change is applied to a copy of the snapshot, and the
// functions by which the fleet decides act on that copy until nothing changes any more: rollout
// decides the sizes of MachineSets, scale which machines are created and deleted and why, inplace
// the stages of a Node that is updated in place, and drain which pods are blocked by which budgets.
// No decision is made here. What is simulated is what is no decision of the fleet: that a VM joins
// as a Node after some time, that a drained VM is gone, and that an agent has updated a Node.
//
// Guarantees: equal inputs result in equal plans. Which machines are replaced, in which order, and
// how many exist at once are what the fleet does when nothing else changes meanwhile and steps take
// the median of their durations. Times are those of several runs whose steps take durations of
// their distribution.
//
// Not guaranteed: what other clients change meanwhile, such as an autoscaler or another rollout;
// that a cloud has capacity; that budgets stay as they are. A machine that is unhealthy stays so,
// and pods are not scheduled: a pod that a budget blocks now, although another pod that the budget
// counts will be healthy later, may be evicted earlier than a plan assumes.
package plan
