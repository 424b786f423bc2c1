// Package commit writes objects. It is the one place where a controller's changes to its own kinds go to the API server.
//
// A Committer takes the object as it was observed and as it should be, and sends the difference: at most one patch of
// the object and one of its status, and nothing where nothing differs.
//
// Guarantees:
//
//   - Every patch carries the UID and the resourceVersion of what was observed. A change that was decided on an old
//     object is refused by the API server with a conflict, and never merged.
//   - What the typed object does not know (fields of a newer version) is left as it is.
//   - Newest returns this process' own last write of an object until the informer has caught up, so that a controller
//     never decides on an object older than what it wrote.
//
// Not guaranteed: that both patches take effect. The first may succeed and the second fail; what is written is then the
// first, and the next pass sees it.
package patch
