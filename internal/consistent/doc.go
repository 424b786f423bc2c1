// Package consistent lists and watches for client-go's reflectors so that a list is never older than its request.
//
// A reflector asks an API server for whatever its cache has (resourceVersion "0"), which may be older than what this process,
// or the one before it, has seen already.
//
// Guarantees: every list is a consistent read that begins after it was asked for; lists are never streamed, which not all
// API servers can do; no feature gate is relied on.
// Not guaranteed: that a watch is not late.
package consistent
