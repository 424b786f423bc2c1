// Package leasetest provides an API server for Leases in memory, for tests: compare-and-swap by UID and resourceVersion, list and
// watch by label, faults on request. Clients use its Config as that of any other server, without a network, so that it works in a
// synctest bubble.
package leasetest
