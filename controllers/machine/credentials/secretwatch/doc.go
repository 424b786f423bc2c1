// Package secretwatch watches the Secrets that machines wait for.
//
// Each Secret has its own watch, by name, while a machine waits for it. It sends no list request, and so needs no permission to
// list. Of a Secret only a checksum of its data is stored.
//
// The number of watched Secrets of a namespace is bounded, however many its machines name. For a Secret beyond that bound, Await
// returns the time after which the machine has to look for the Secret itself.
//
// Guarantees: a machine that waits for a watched Secret is woken when the data differs, or may differ, from the data that the
// machine has read, also if it changed before the machine began to wait; other changes wake no machine; a Secret is watched only
// while a machine waits for it.
// Not guaranteed: that the deletion of a Secret while its watch is interrupted is noticed before a machine reads the Secret.
// While a Secret cannot be watched, the machines that wait for it are woken periodically instead.
package secretwatch
