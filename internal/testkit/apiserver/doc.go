// Package apiserver is an API server in memory, for tests of controllers and for those that run
// whole replicas of the fleet.
//
// A Server stores objects as JSON and answers HTTP requests without sockets: it is an
// http.RoundTripper, so that clients created from a rest.Config can run in a bubble of
// testing/synctest. It implements what the fleet relies on: UIDs, one counter of revisions,
// generations, finalizers, the status subresource, preconditions, merge, strategic merge and JSON
// patches, label and field selectors, lists in pages of one revision, streamed lists, watches with
// a history that can be compacted and, of built-in kinds, in protobuf, and PartialObjectMetadata;
// pods on a Node stay for their grace when they are deleted. Answers are 404, 409, 410 and 422
// where an API server's are. Requests can be made to fail before or after they take effect, and
// the whole server can stop answering. A view of objectcache can show all changes, at once or
// late. Requests can be recorded.
//
// Guarantees: a Server is safe for concurrent use and starts no goroutine; a watch ends when its
// body is closed or the context of its request ends. Not guaranteed: admission, validation by
// schemas, defaults, access control, garbage collection, discovery.
package apiserver
