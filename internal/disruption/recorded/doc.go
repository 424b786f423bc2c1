// Package recorded reads the disruptions that are recorded on the roots of machines.
//
// Guarantees: a machine has a disruption only if the annotation of its root names it, by UID, in
// the state that it is in now. Not guaranteed: that the cache shows the latest annotation.
package recorded
