// Package objectcache is the cache of the objects of a kind in this process, for controllers to
// read, and lists and watches them for client-go's reflectors.
//
// An Objects is filled by its callers, from any number of watches, and notifies its handlers of
// each change. A Store is one for the objects of a kind that can be decoded, and one for those that
// cannot. A ListerWatcher never returns a list that is older than its request: a reflector requests
// any version in the API server's cache (resourceVersion "0"), which may be older than what this
// process, or the one before it, has seen already.
//
// Guarantees:
//
//   - An older version never replaces a newer one, from any watch.
//   - Handlers see the changes of all objects one after the other, in the order in which they were
//     applied, and each with the version before it.
//   - An object that was deleted and created anew under one name, with another UID, is reported as
//     removed and then as new, also where this process has seen no event between the two: in a
//     list, and when another watch takes over. All handlers are called with the removal first. In
//     both calls the cache already has the new object, which is never missing from it: a handler
//     that is called with a removal may conclude that this object is gone, by its UID, and must not
//     conclude that there is none of its name. What it drops by the name is what the handlers of
//     new objects cause to be created again.
//   - A reader of a Store finds an object exactly once, also while an edit makes it undecodable or
//     decodable.
//   - Objects can be applied silently and announced later: until then they can be read, and no
//     handler is called for them.
//   - Every list is a consistent read that begins after its request. Lists are never streamed,
//     which not all API servers support; no feature gate is relied on.
//
// View.Of shows the objects of one namespace, to what has to act for that namespace only and does
// not exist for as long as the process.
//
// Handler makes the same of the events of client-go's informers, which report an object in the
// place of another as an update.
//
// Not guaranteed: that the cache is complete or current, or that a watch is not late. An object
// that is missing here may exist, and an object that was removed may only be no longer watched by
// this process.
package objectcache
