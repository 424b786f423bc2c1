// Package certificates issues certificates for tests of servers that authenticate their clients by
// them. They are valid at all times that a test has, also in a bubble of testing/synctest.
package certificates
