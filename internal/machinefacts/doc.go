// Package machinefacts has the one definition of each fact about Machines and MachineSets that
// several controllers decide on: phases, preservation, availability, deadlines, the stage of an
// update in place, the intents of a MachineSet, the names derived from them, and conditions. It is
// pure.
//
// Guarantees: a fact that depends on time takes the time, so that two controllers which read the
// same object at the same time agree on it. A machine that is being deleted is neither available
// nor preserved, regardless of what its status contains. A machine that a set has recorded for
// creation is awaited until it is observed, regardless of what the set's replicas are by then.
// Intents that cannot be read are an error for each reader, and no reader continues as if there
// were none. A Node whose update in place has ended has nothing of it but its condition.
//
// Not guaranteed: that an object is as its cache shows it.
package machinefacts
