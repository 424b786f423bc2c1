// Package grants shows a replica the objects of the slots that it holds, and no others.
//
// A grant is the slots that a session acquired together, with one set of watches, one for each kind of objects. The API
// server filters: the watches select by the slot label. A Set keeps few grants: what is acquired within a moment becomes
// one, and grants are merged in the background, so that a replica with many slots does not need many watches.
//
// Guarantees:
//
//   - The slots of a grant are ready only after every kind was listed, by consistent reads that began after Add.
//   - The objects of a slot are silent until Open, and gone at once with Drop.
//   - An object that cannot be decoded keeps no other from being shown. It is shown apart, with its metadata, once per version.
//   - Of each slot only one grant's events count, and a merged grant takes over without a gap, and without an event twice.
//
// Classes do the same for MachineClasses, which are in no slot: by namespace, and by name.
//
// Not guaranteed: that an object that goes was deleted. If it has no deletionTimestamp it may have left the slot. And one
// that was given to another slot of ours and then deleted comes back for a moment where the watch that it has left is late.
//
// Handlers must not call a Set: they run while it is locked.
package slotcache
