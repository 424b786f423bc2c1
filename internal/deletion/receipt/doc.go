// Package receipt has the receipts of deletions: what the fleet has deleted, why, and under which
// ownership. It is pure.
//
// A decision to delete carries its Reason from the pure function that decided to the request that
// deletes. internal/deletion sends the request and records the receipt. The names of the fields and
// of the rules are an interface: docs/operations/configure.md describes them.
//
// A Ledger has the reservations of a deletion budget.
//
// Guarantees:
//
//   - Reserve never has more than the limit in the ledger, except what was there before.
//   - A deletion that is reserved again counts once, from the last time on: what was reserved and
//     not carried out, because its process ended or its request failed, does not use up the budget.
//   - A time that is in the future, by the clock of this process, counts from now on: the ledger
//     that Reserve returns has it as now.
//
// Not guaranteed: that an Hour is exact. Reservations have the time of the process that created
// them, and clocks differ.
package receipt
