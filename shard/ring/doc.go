// Package ring returns which slot a key belongs to, and which replica a consistent-hash table names for a slot. It is pure.
//
// Guarantees: both are functions of their arguments only, the same in every replica and every build with the same Version; a
// golden file fixes them. The order of replicas does not matter. No replica gets more than 1.25 times the mean number of slots,
// rounded up. A replica that joins n others takes about its share, and very little moves between the others.
//
// Not guaranteed: that the load is even. The table counts slots and ignores weights; package assignment weighs them, and uses the
// table only to choose among equally suitable replicas.
package ring
