// Package page serves a read-only page about the whole fleet at Path: replicas and slots, target
// clusters, machines as tiles, rollouts, drains, circuit breakers, orphans and deletions. Any
// replica serves it, of all slots, and sends changes as server-sent events.
//
// What is read, and how, is in package watch; what is shown of it in package model. The files of
// the page are embedded in the binary, and request nothing from anywhere else.
//
// Guarantees:
//
//   - No request changes anything but the sessions of this process. There is no write to the API
//     server.
//   - Without Access the page is served to clients on loopback addresses under a name of the
//     loopback interface. With Access a client needs a bearer token that Access admits for Path, in
//     the header Authorization or by the login form.
//   - The cookie of a login has a random number, and nothing of the token, which stays in the memory
//     of this process. Another replica, or this one after a restart, asks for the login again. The
//     cookie is not sent over HTTP, but by browsers to loopback addresses.
//   - Access is asked again each 15 s while a stream is open, also of a viewer that is slow, as soon as
//     that one has taken an event, for which it has 30 s. A refusal ends the stream, and the session
//     if the token is not valid any more.
//   - Without viewers nothing is read and nothing is computed, from a minute after the last one on.
//     Otherwise a state is computed at most once in a second, for all viewers together, and takes a
//     twentieth of the time at most: a larger fleet is shown less often.
//   - A slow viewer delays no other: it gets the latest state when it can take it, and misses those
//     in between. Viewers, sessions, logins and all that is sent are bounded. One user has a part of
//     the streams and sessions only, with all tokens together, and one address of the logins.
//   - Other sites in the browser of a viewer start and end no sessions, and open no streams.
//   - Names and texts of objects are sent as JSON and shown as text; a Content-Security-Policy
//     permits no scripts but the page's own file.
//
// Not guaranteed: that what is shown is current. What the page could not read it says.
package page
