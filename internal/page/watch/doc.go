// Package watch reads what the page of the fleet shows, of all slots: a replica has only the
// objects of its own ones. It lists and watches while Run runs, which is while there are viewers.
//
// Guarantees:
//
//   - Before and after Run nothing is requested and nothing is stored.
//   - Of objects only what the page needs is stored: no annotations but those that it reads, no
//     provider specs, no user data.
//   - What cannot be read hides nothing else, and is reported. An object that does not decode does
//     not hide others.
//   - Objects of a namespace that the fleet does not serve are not shown.
//   - Whether these lists are answered decides nothing about the replica.
//
// Not guaranteed: that objects of two kinds are of the same moment.
package watch
