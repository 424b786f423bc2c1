// Package attack attacks a fleet in the lab: as a tenant who has the rights of one namespace, as the kubelet of a Node, as a
// cloud that lies, and with a stolen token of the fleet. Each case is an attack that succeeded once.
//
// Guarantees: an attack that reaches what is not its own fails the tests, also when it does so for a moment only, because everything
// of a victim is watched from the beginning to the end; each refusal is in words that its user understands.
// Not guaranteed: that nothing else can be attacked. TestAttacks draws attacks at random, for ATTACK_TIME; SEED repeats
// them, as far as the fleet does things in the same order.
//
// What each party can do, and what remains, is in docs/security.md.
package attack
