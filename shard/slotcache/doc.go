// Package slotcache caches the objects of the slots that a replica holds, and of no others.
//
// A grant is the set of slots that a session acquired together, with one watch for each kind of
// objects. The API server filters: the watches select by the slot label. A Set keeps few grants:
// slots that are acquired within a short time become one grant, and grants are merged in the
// background, so that a replica with many slots does not need many watches.
//
// Guarantees:
//
//   - The slots of a grant are ready only after every kind was listed, by consistent reads that
//     began after Add.
//   - Handlers are called for the objects of a slot only after Open. Drop removes the objects
//     before it returns.
//   - An object that cannot be decoded does not prevent other objects from being cached. It is
//     cached separately, with its metadata, and reported once per version.
//   - Events of a slot are taken from one grant only. A merged grant takes over without missing or
//     repeating an event.
//
// Classes does the same for MachineClasses, which have no slot: by namespace, and by name.
//
// Not guaranteed: that an object that is removed from the cache was deleted. If it has no
// deletionTimestamp, it may have left the slot. An object that was labeled with another slot of
// this replica and then deleted may be cached again for a short time if the watch of its former
// slot is behind.
//
// Handlers must not call a Set: the Set is locked while they run.
package slotcache
