// Package ring says which slot a key belongs to, and which replica a consistent-hash table gives a slot. It is pure.
//
// Guarantees: both are functions of their arguments alone, the same in every replica and every build with the same
// Version; a golden file holds them fast. The order of replicas does not matter. No replica gets more than 1.25 times
// the mean number of slots, rounded up. A replica that joins n others takes about its share, and very little moves
// between the others.
//
// Not guaranteed: that the load is even. The table counts slots and knows no weights; package plan does, and takes from
// the table only whom to choose where several would do.
package ring
