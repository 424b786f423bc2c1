// Package connection connects to the API server of a target cluster, whose credentials may change,
// and which its own administrators control.
//
// Guarantees: other credentials of the same server are used for the next request, and interrupt
// none. No answer makes the process connect to another server, and none is larger than MaxBody, no
// failure than MaxError, no event of a watch than MaxEvent, and all answers that are being read
// than MaxBodies. Events of watches are read at a bounded rate. What has more values than objects
// of Kubernetes have is not decoded; a page of a list is then requested with fewer objects. How
// many values are decoded at a time is bounded, of all connections together and of each. An address
// in a refused network is not connected to, by any name. No key of a certificate takes more time of
// a handshake than one of 8192 bits.
//
// Not guaranteed: that a watch ends when its credentials do. Clients decode an answer after they
// have closed it: what is decoded at a time is bounded by a rate, and is more where decoding is
// slower than that.
package connection
