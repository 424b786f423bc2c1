// Package assignment decides which slot an object belongs to, which replica should hold which slot,
// and how much of the work each replica carries. It is pure.
//
// A Spread maps objects to slots, and Table names a replica for each slot by consistent hashing.
// Both are functions of their arguments only, the same in every replica and every build with the
// same RingVersion; a golden file fixes them. The order of replicas does not matter. No replica
// gets more than 1.25 times the mean number of slots, rounded up, in the Table.
//
// Assign is a function from what is known about replicas and slots (a World) to new assignments (a
// Verdict).
//
// A slot moves only for a reason. It must move if it is not assigned, or if its replica is dead,
// leaves or does not take it; such slots are assigned at once, the heaviest first. It returns to
// its home when that replica is available again. And within limits it moves to a newcomer, or
// because its replica carries more than 1.10 times the mean. The consistent-hash table only chooses
// among equally suitable receivers; it is never a reason to move a slot.
//
// The load of a replica is the weight of its slots, divided by its capacity. A slot weighs its
// machines, and a tenth of a machine for itself, so that empty slots are spread too.
//
// Guarantees, tested with generated worlds: every slot is assigned to a replica that stays, if one
// lives; no slot is assigned to a replica that was passed over for it while another may have it;
// moves for joining or load stay within the limits of a minute; a newcomer gets its share, at most
// 1.2 times its part of the slots, and no other replica gets slots because of it; replicas that
// leave and return one after the other get their slots back; in a fleet at rest, no slot moves.
//
// Not guaranteed: the best packing. A slot is not split, two slots are not exchanged, and the
// replica with the heaviest slot may have to carry more than the bound. While a replica is awaited
// at its home, the load is evened out by moving its slots only.
package assignment
