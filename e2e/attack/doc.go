// Package attack attacks a fleet in the lab: as a tenant who has the rights of one namespace, as
// the kubelet of a Node, as a cloud with false answers, and with a stolen token of the fleet. Each
// case is an attack that succeeded once.
//
// Guarantees: an attack that reaches objects of others fails the tests, also when it does so for a
// moment only, because all objects of a victim are watched from the beginning to the end; each
// rejection has a message that its user understands. Not guaranteed: that nothing else can be
// attacked. TestAttacks draws attacks at random, for ATTACK_TIME; SEED repeats them, as far as the
// fleet acts in the same order.
//
// What each party can do, what remains, and which test shows what is in docs/security.md.
package attack
