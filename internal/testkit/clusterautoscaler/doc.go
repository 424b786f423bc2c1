// Package clusterautoscaler is a double of upstream's cluster-autoscaler with the provider
// externalgrpc, for tests of the service that answers it.
//
// An Autoscaler observes and decides once for each Loop, in upstream's order: Refresh, which drops
// its caches of groups and of Nodes' groups; all groups; the group of each Node; the template of
// each group without a Node; sizes and instances, which it caches for two minutes or until it has
// changed the group; then it deletes instances that have not registered in time, and those with
// errors, whose groups it does not scale for some time; it fixes sizes that differ from the number
// of Nodes for long; it scales one group up, or else it scales down. A size that cannot be read or
// fixed ends the loop, and so does a group that cannot be scaled up.
//
// Guarantees: it is deterministic, and reads no clock but Config.Now. An Autoscaler is for one
// goroutine; its calls are synchronous, also those that upstream sends side by side.
//
// Not guaranteed: the scheduler. Each pod needs one Node for itself, and the group that helps most
// pods is scaled up, the first one by name of several. There is no drain: Nodes with pods stay.
package clusterautoscaler
