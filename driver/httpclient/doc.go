// Package httpclient is the HTTP client of drivers for clouds that a fleet does not trust with its
// memory, its connections or its place in the network.
//
// Guarantees:
//
//   - Requests go to endpoints of an allow-list of the fleet's operator, see Endpoints, and nowhere
//     else: redirects are not followed.
//   - An answer is read up to Limits, and counted before it is decoded. A larger one is a
//     *LimitError, and costs no more than its limit. Of answers of more than a few KiB or of many
//     values only some are in memory at a time; the others wait, until their context ends.
//   - The number of connections to a cloud is bounded, and idle ones are closed.
//
// Not guaranteed: that the text of an answer may be shown. Put it into a driver.Error, which shows
// a bounded and cleaned part; what is neither the cloud's code nor its message must not be part of
// it.
//
// CodeOf and CheckPage judge what no cloud has to get right: statuses of proxies, and pages of
// lists.
//
// A driver whose cloud has a client library gives that the transport of Transport and the answers
// of its list to Endpoints; what the library reads is then bounded by the library.
package httpclient
