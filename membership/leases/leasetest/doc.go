// Package leasetest is an API server for Leases in memory, for tests: compare-and-swap by UID and resourceVersion, list
// and watch by label, faults on demand. It is reached through Config as any other server is, without a network, so that
// it works in a synctest bubble.
package leasetest
