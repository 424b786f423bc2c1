// Package safety has the controllers that the leader runs to protect from what was not ordered. Overshooting freezes MachineSets that
// create machines beyond their size; controllers/safety/overshoot decides. UnmanagedNodes annotates Nodes without a machine;
// controllers/safety/unmanaged decides.
//
// Guarantees: nothing is decided on a cache, nor on a list that was not read to its end. Writes are those of the leader: they end with
// the leadership, and carry the UID and resourceVersion of the object that was read.
package safety
