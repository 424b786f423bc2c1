// Package proxy puts TCP proxies (toxiproxy) between a process and the servers that it talks to, so that tests can make
// the network bad for one process and one server alone.
//
// It passes bytes on and knows nothing of what they mean, so TLS is between the ends. It counts what it has taken in, by
// direction. A fault holds for connections that are open and for those to come, until another takes its place.
//
// Not guaranteed: packets. A cut loses whole pieces of a stream, and so may a limit and a stall; connections that were open
// during one end with it.
package proxy
