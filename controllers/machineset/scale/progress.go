package scale

import (
	"slices"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// settle removes observed intents: creations of machines that the cache has, deletions of machines that are ending or deleted; and
// deletions of failed machines that are spared.
func settle(w World, in Intents) Intents {
	out := in.clone()
	seen := seenOrdinals(w)
	out.Create = slices.DeleteFunc(out.Create, func(o int64) bool { return seen[o] || w.Done.Taken[o] })
	out.Delete = slices.DeleteFunc(out.Delete, func(d Doomed) bool {
		return !slices.ContainsFunc(w.Owned, func(m *v1alpha1.Machine) bool {
			return m.UID == d.UID && m.DeletionTimestamp == nil && !d.spares(w.Set, m)
		})
	})
	return out
}

// awaited returns the ordinals that count although the cache does not have their machines.
func awaited(w World, in Intents) []int64 {
	seen := seenOrdinals(w)
	return slices.DeleteFunc(slices.Clone(in.Create), func(o int64) bool { return seen[o] })
}

// isUnmade reports whether the API server, which was read, has no machine for an ordinal.
func isUnmade(w World) func(ordinal int64) bool {
	made := map[int64]bool{}
	for _, m := range w.Live.Owned {
		if o, ok := OrdinalIn(w.Set, m); ok {
			made[o] = true
		}
	}
	return func(ordinal int64) bool { return !made[ordinal] && !w.Done.Created[ordinal] }
}

// withdraw removes up to most of the given creations, the last first, and returns how many. Their ordinals are not used again, so
// that one which takes effect later is a surplus machine, and is deleted.
func withdraw(in *Intents, most int, may func(ordinal int64) bool) (withdrawn int) {
	for i := len(in.Create) - 1; i >= 0 && withdrawn < most; i-- {
		if may(in.Create[i]) {
			in.Create = slices.Delete(in.Create, i, i+1)
			withdrawn++
		}
	}
	return withdrawn
}

// spared counts the machines that were to be deleted because they had failed, and are spared.
func spared(w World, in Intents) (n int) {
	for _, m := range w.Owned {
		if in.spares(w.Set, m) {
			n++
		}
	}
	return n
}

// grew reports whether new intents were added.
func grew(before, after Intents) bool {
	return after.Next != before.Next ||
		slices.ContainsFunc(after.Delete, func(d Doomed) bool { return !before.dooms(d.UID) })
}

// isStale reports whether an intent's machine is ending already: if the intent were removed late, its ordinal would be used again.
// Other observed intents are removed when all are observed, or along with new ones, so that a batch costs two writes.
func isStale(w World, in Intents) bool {
	return slices.ContainsFunc(w.Owned, func(m *v1alpha1.Machine) bool {
		o, ok := OrdinalIn(w.Set, m)
		return ok && m.DeletionTimestamp != nil && slices.Contains(in.Create, o)
	})
}

// settled reports whether all intents are observed.
func settled(in Intents) bool { return len(in.Create) == 0 && len(in.Delete) == 0 }

// seenOrdinals returns the ordinals of the set's machines in the cache.
func seenOrdinals(w World) map[int64]bool {
	seen := make(map[int64]bool, len(w.Owned))
	for _, m := range w.Owned {
		if o, ok := OrdinalIn(w.Set, m); ok {
			seen[o] = true
		}
	}
	return seen
}
