// Package model computes what the page of the fleet shows from a snapshot, and what has changed
// from one state to the next. It is pure.
//
// A State consists of sections, which are sent whole when they differ, and of tiles, one for each
// machine, of which only those are sent that differ.
//
// Guarantees: equal inputs result in equal states, in a fixed order. Each list has a bound, and
// counts are those of all objects, also beyond the bound. Texts of other authors are cut to a
// bound, and are otherwise as they are: who shows them must not interpret them. A change that is
// applied to the state before it results in the state after it.
//
// Not guaranteed: that objects of a state are of the same moment.
package model
