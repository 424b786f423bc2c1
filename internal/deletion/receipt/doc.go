// Package receipt has the receipts of deletions: what the fleet has deleted, why, and under which ownership. It is pure.
//
// A decision to delete carries its Reason from the pure function that decided to the request that deletes. internal/deletion/deletionlog sends the
// request and records the receipt. The names of the fields and of the rules are an interface: docs/operations/configure.md describes
// them.
package receipt
