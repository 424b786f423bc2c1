// Package proxy puts TCP proxies (toxiproxy) between a process and the servers that it connects to,
// so that tests can make the network fail between one process and one server only.
//
// It forwards bytes without interpreting them, so TLS is between the ends. It counts the received
// bytes, by direction. A fault applies to open and to new connections, until another replaces it.
//
// Not guaranteed: packets. A cut loses whole pieces of a stream, and so may a limit and a stall;
// connections that were open during one end with it.
package proxy
