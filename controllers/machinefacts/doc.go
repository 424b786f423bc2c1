// Package machinefacts has the one definition of each fact about Machines and MachineSets that several controllers decide on:
// phases, preservation, availability, deadlines, the stage of an update in place, the intents of a MachineSet, the names derived
// from them, and conditions. It is pure.
//
// Guarantees: a fact that depends on time takes the time, so that two controllers which look at the same object at the same time
// agree on it. A machine that is being deleted is neither available nor preserved, whatever its status says. A machine that a set
// has decided to make is awaited until it is seen, whatever size the set has got since. Intents that cannot be read are an error
// for each reader, and no reader continues as if there were none. A Node that an update in place has left carries nothing of it
// but its condition.
//
// Not guaranteed: that an object is as its cache shows it.
package machinefacts
