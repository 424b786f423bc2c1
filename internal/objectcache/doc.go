// Package objectcache is the cache of the objects of a kind in this process, for controllers to read, and lists and watches
// them for client-go's reflectors.
//
// An Objects is filled by its callers, from any number of watches, and notifies its handlers of each change. A Store is one for the
// objects of a kind that can be decoded, and one for those that cannot. A ListerWatcher never
// returns a list that is older than its request: a reflector requests any version in the API server's cache (resourceVersion "0"),
// which may be older than what this process, or the one before it, has seen already.
//
// Guarantees:
//
//   - An older version never replaces a newer one, from any watch.
//   - Handlers see the changes of all objects one after the other, in the order in which they were applied, and each with the version
//     before it.
//   - A reader of a Store finds an object exactly once, also while an edit makes it undecodable or decodable.
//   - Objects can be applied silently and announced later: until then they can be read, and no handler is called for them.
//   - Every list is a consistent read that begins after its request. Lists are never streamed, which not all API servers
//     support; no feature gate is relied on.
//
// Not guaranteed: that the cache is complete or current, or that a watch is not late. An object that is missing here may exist, and an
// object that was removed may only be no longer watched by this process.
package objectcache
