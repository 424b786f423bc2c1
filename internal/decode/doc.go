// Package decode reads objects of the machine API so that one which does not decode does not hide
// the others.
//
// An API server stores what its CRD allows, and a CRD can allow values that the Go type rejects:
// MCM's CRDs allow any text as drainTimeout. A client of client-go fails the whole list, and breaks
// the watch, for one such object. A client with a Config of this package decodes item by item where
// the whole does not decode:
//
//   - A list returns the items that decode, together with a ListError that has a Failure for each
//     of the others.
//   - Get, Create, Update and Patch return a Failure as their error.
//   - A watch delivers a Failure in the place of the object.
//
// A Failure has the metadata of the object, so that its reader knows that the object exists, and
// its name and labels. A caller without support for this package gets an error and never an
// incomplete list.
//
// It also decodes faster than client-go, whose decoder reads each byte several times: events of
// watches and answers to writes are a quarter of a replica's work. What it does not decode is
// decoded by client-go again, which decides what is an error.
//
// Guarantees: what client-go decodes is decoded to the same object, without its managed fields. A
// list that decodes is decoded once, as without this package; versions, continue
// tokens and bookmarks are those of the API server. Not guaranteed: an object whose metadata does
// not decode, which API servers do not store, fails the whole answer.
//
// Lists of the API are read in pages that are bounded in bytes: what a tenant writes must not
// decide how much memory a request for it takes.
//
// Guarantees of pages: a list is read from the API server, as a whole or with an error, with at
// most PageSize objects in memory at a time. Where the client has the PageTransport, a page has at
// most PageBytes bytes, or is one object. A page whose request fails with an error that has a
// method IsTooLarge is requested again with fewer objects. A list without end is an error.
//
// Not guaranteed of pages: that objects which cannot be decoded are on the pages.
package decode
