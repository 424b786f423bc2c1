// Package secretwatch sees the Secrets that machines wait for, while they do.
//
// Each Secret has a watch of its own, by name, from the first machine that waits for it until the last one. It asks for no
// list, and so for no right to list. What it holds of a Secret is a short print of its data.
//
// So many Secrets of a namespace are watched and no more, however many its machines name. Whoever waits for another one is told when
// to look for it himself.
//
// Guarantees: whoever waits for a watched Secret is woken when the data is, or may be, another than what he has seen, also if that was before he
// began to wait; other changes wake nobody; nothing is watched that nobody waits for.
// Not guaranteed: that a Secret that goes while its watch is interrupted is missed before somebody looks. While a Secret
// cannot be watched, those who wait for it are woken from time to time instead.
package secretwatch
