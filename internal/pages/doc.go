// Package pages reads lists of the API in pages that are bounded in bytes: what a tenant writes must not decide how much memory a
// request for it takes.
//
// Guarantees: a list is read from the API server, as a whole or with an error, with at most Size objects in memory at a time. Where the
// client has the Transport, a page has at most Bytes bytes, or is one object.
//
// Not guaranteed: that objects which cannot be decoded are on the pages.
package pages
