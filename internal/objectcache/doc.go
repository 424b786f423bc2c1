// Package objectcache keeps what a process knows of the objects of a kind, for controllers to read, and lists and watches them for
// client-go's reflectors.
//
// An Objects is fed from outside, by as many watches as there are, and notifies its handlers of each change. A ListerWatcher never
// returns a list that is older than its request: a reflector asks an API server for whatever its cache has (resourceVersion "0"),
// which may be older than what this process, or the one before it, has seen already.
//
// Guarantees:
//
//   - An older version never replaces a newer one, whichever watch delivers it.
//   - Handlers see the changes of all objects one after the other, in the order in which they were fed, and each with the version
//     before it.
//   - Objects can be fed silently and announced later: until then they can be read, and no handler is called for them.
//   - Every list is a consistent read that begins after it was asked for. Lists are never streamed, which not all API servers
//     support; no feature gate is relied on.
//
// Not guaranteed: that the cache is complete or current, or that a watch is not late. An object that is missing here may exist, and an
// object that was removed may only have left what this process watches.
package objectcache
