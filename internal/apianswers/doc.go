// Package apianswers rejects answers that no API server has written: a proxy without a route, the default backend of an ingress or a captive
// portal answers in the place of an API server, with a 404 that would be the absence of an object, or with a 200 that would be an accepted deletion
// or an empty list.
//
// Guarantee: a client of a configuration that Check has returned gets an error instead of such an answer, whose status 502 proves nothing about
// objects and requests: none of NotFound, Gone, Conflict, AlreadyExists, Forbidden, Unauthorized, Invalid and TooManyRequests is true of it.
//
// An API server itself writes some answers that are no object of Kubernetes, and they are rejected, too. One is "404 page not found", for a
// resource that it does not serve: it is not the absence of objects either, because a CustomResourceDefinition that is deleted, or not served
// for a moment, has it.
//
// Not guaranteed: that an object of Kubernetes which another server writes is detected, nor an event of a watch that a proxy has invented.
package apianswers
