// Package patch writes objects. All changes of a controller to its own kinds are sent to the API
// server here.
//
// A Committer takes the object as it was observed and as it should be, and sends the difference: at
// most one patch of the object and one of its status, and nothing where nothing differs.
//
// Guarantees:
//
//   - Every patch carries the UID and the resourceVersion of what was observed. A change that was
//     decided on an old object is rejected by the API server with a conflict, and never merged.
//   - Controllers that share a Latest do not send what would conflict with their own writes: patches of
//     one object take turns, and one that was decided on an older version than this process has
//     written is a conflict without a request.
//   - Fields that the typed object does not have (of a newer version) are not changed.
//   - Newest returns this process' own last write of an object until the informer has caught up, so
//     that a controller never decides on an object older than what it wrote. What an API server
//     returns instead of the object is not remembered, nor what is more than AtMost, nor, after a
//     conflict, what etcd has lost in a restore.
//   - IsOwn reports whether an event is about a version that the Committer wrote itself.
//
// Not guaranteed: that both patches take effect. The first may succeed and the second fail; then
// the first is written, and the next pass observes it.
package patch
