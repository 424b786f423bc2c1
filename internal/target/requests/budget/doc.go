// Package budget decides which requests to the API server of one target cluster are sent. It is
// pure: it receives the time and the ends of requests as values.
//
// A request that cannot be sent now is refused at once, with the time after which to try again: the
// workers of a process are for all target clusters, and one that waits for a slow server is missing
// for the others.
//
// Guarantees: no more requests are in flight than the share of the cluster, and no more are sent
// in a second than the rate. When Failures requests of a Breaker in a row have failed, reads or
// writes, only one of that kind is sent at a time, at the end of a pause that grows with each
// failure, until one is answered. One that opens again soon continues with its pauses, so that a
// server that answers now and then does not open and close it each time.
//
// Not guaranteed: the order of requests that were refused.
package budget
