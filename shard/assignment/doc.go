// Package plan decides which replica should hold which slot. It is pure: Plan is a function from what is known about
// replicas and slots (a World) to new preferred holders (a Verdict).
//
// A slot moves only for a reason. It must, when it has no preferred holder, or that is dead, leaves or does not take it;
// such slots are placed at once, the heaviest first. It goes home when the replica is back that it left as its home. And
// within limits it moves to a newcomer, or because its holder carries more than 1.10 times the mean. The consistent-hash
// table only chooses among receivers that would all do; that the table says otherwise moves nothing.
//
// The load of a replica is what its slots weigh, divided by its capacity. A slot weighs its machines, and a tenth of a
// machine for itself, so that empty slots are spread too.
//
// Guarantees, tested with generated worlds: every slot gets a preferred holder that stays, if one lives; no replica is
// asked for a slot that it was passed over for while another may have it; calm moves keep to the limits of a minute; a
// newcomer gets its share, at most 1.2 times its part of the slots, and nobody else gets anything by it; replicas that
// leave and come back one after the other find their slots where they were; of a fleet at rest, planning moves nothing.
//
// Not guaranteed: the best packing. A slot is not split, two slots are not exchanged, and the replica with the heaviest
// slot may have to carry more than the bound. While a replica is awaited at home, the load is evened with its slots alone.
package assignment
