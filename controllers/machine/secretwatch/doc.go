// Package secretwatch sees the Secrets that machines wait for, while they do.
//
// Each Secret has a watch of its own, by name, from the first machine that waits for it until the last one. It asks for no
// list, and so for no right to list. What it holds of a Secret is a short print of its data.
//
// The number of watched Secrets of a namespace is bounded, however many its machines name. For a Secret beyond that bound, Await
// returns the time after which the machine has to look for the Secret itself.
//
// Guarantees: a machine that waits for a watched Secret is woken when the data is, or may be, different from what the machine has
// seen, also if the data changed before the machine began to wait; other changes wake no machine; no Secret is watched for which no
// machine waits.
// Not guaranteed: that the deletion of a Secret while its watch is interrupted is noticed before a machine looks for the Secret.
// While a Secret cannot be watched, the machines that wait for it are woken from time to time instead.
package secretwatch
