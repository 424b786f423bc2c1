package scale

import (
	"slices"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinefacts"
)

// settle strikes off what is seen done: machines that the cache shows, and machines that are ending or gone; and machines
// that were to be deleted because they had failed, and are spared.
func settle(w World, in machinefacts.Intents) machinefacts.Intents {
	out := in.Clone()
	seen := machinefacts.SeenOrdinals(w.Set, w.Owned)
	out.Create = slices.DeleteFunc(out.Create, func(o int64) bool { return seen[o] || w.Done.Taken[o] })
	out.Delete = slices.DeleteFunc(out.Delete, func(d machinefacts.Doomed) bool {
		return !slices.ContainsFunc(w.Owned, func(m *v1alpha1.Machine) bool {
			return m.UID == d.UID && m.DeletionTimestamp == nil && !sparesDoomed(d, w.Set, m)
		})
	})
	return out
}

// awaited are the ordinals that count although the cache does not show their machines.
func awaited(w World, in machinefacts.Intents) []int64 {
	return machinefacts.Awaited(in, w.Set, w.Owned)
}

// isUnmade reports whether the API server, which was read, has no machine for an ordinal.
func isUnmade(w World) func(ordinal int64) bool {
	made := map[int64]bool{}
	for _, m := range w.Live.Owned {
		if o, ok := machinefacts.OrdinalIn(w.Set, m); ok {
			made[o] = true
		}
	}
	return func(ordinal int64) bool { return !made[ordinal] && !w.Done.Created[ordinal] }
}

// withdraw takes back up to most of the creates that may be, the last first, and returns how many. Their ordinals are not
// used again, so that one which takes effect late is a machine too many, and goes.
func withdraw(in *machinefacts.Intents, most int, may func(ordinal int64) bool) (withdrawn int) {
	for i := len(in.Create) - 1; i >= 0 && withdrawn < most; i-- {
		if may(in.Create[i]) {
			in.Create = slices.Delete(in.Create, i, i+1)
			withdrawn++
		}
	}
	return withdrawn
}

// spared counts the machines that were to be deleted because they had failed, and are spared.
func spared(w World, in machinefacts.Intents) (n int) {
	for _, m := range w.Owned {
		if spares(in, w.Set, m) {
			n++
		}
	}
	return n
}

// grew says that something new was decided.
func grew(before, after machinefacts.Intents) bool {
	return after.Next != before.Next ||
		slices.ContainsFunc(after.Delete, func(d machinefacts.Doomed) bool { return !before.Dooms(d.UID) })
}

// isStale says that an intent's machine is ending already: struck off late, its ordinal would be used again. Otherwise
// what is done is struck off when all of it is, or along with something new, so that a batch costs two writes.
func isStale(w World, in machinefacts.Intents) bool {
	return slices.ContainsFunc(w.Owned, func(m *v1alpha1.Machine) bool {
		o, ok := machinefacts.OrdinalIn(w.Set, m)
		return ok && m.DeletionTimestamp != nil && slices.Contains(in.Create, o)
	})
}

// settled says that nothing is left to be seen done.
func settled(in machinefacts.Intents) bool { return len(in.Create) == 0 && len(in.Delete) == 0 }

func highestOrdinal(machines []*v1alpha1.Machine) int64 {
	highest := int64(-1)
	for _, m := range machines {
		if o, ok := machinefacts.Ordinal(m); ok {
			highest = max(highest, o)
		}
	}
	return highest
}
