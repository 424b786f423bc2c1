package scale

import (
	"slices"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// withoutObserved returns the intents without those that are observed: for machines that the cache
// shows, and for machines that are being deleted or do not exist. Those for machines that were
// recorded for deletion and are kept are left out, too.
func withoutObserved(w World, in machinefacts.Intents) machinefacts.Intents {
	out := in.Clone()
	out.Create = slices.DeleteFunc(awaited(w, in), func(o int64) bool { return w.Done.Occupied[o] })
	out.Delete = slices.DeleteFunc(out.Delete, func(d machinefacts.Deletion) bool {
		return !slices.ContainsFunc(w.Owned, func(m *v1alpha1.Machine) bool {
			return m.UID == d.UID && m.DeletionTimestamp == nil && !isObsolete(w, d, m)
		})
	})
	out.Leaving = leaving(w, in)
	if !in.Losses.Lasts(w.Set.Generation, w.Now) {
		out.Losses = nil
	}
	return out
}

// awaited returns the ordinals that count although the cache does not show their machines.
func awaited(w World, in machinefacts.Intents) []int64 {
	return machinefacts.Awaited(in, w.Set, w.Owned)
}

// isNotCreated reports whether the API server, which was read, has no machine for an ordinal.
func isNotCreated(w World) func(ordinal int64) bool {
	created := map[int64]bool{}
	for _, m := range w.Live.Owned {
		if o, ok := machinefacts.OrdinalIn(w.Set, m); ok {
			created[o] = true
		}
	}
	return func(ordinal int64) bool { return !created[ordinal] && !w.Done.Created[ordinal] }
}

// withdraw removes up to most of the creations for which may returns true, the last ones first, and
// returns how many. Their ordinals are not used again: a creation that takes effect late is a
// surplus machine, and is deleted.
func withdraw(in *machinefacts.Intents, most int, may func(ordinal int64) bool) (withdrawn int) {
	for i := len(in.Create) - 1; i >= 0 && withdrawn < most; i-- {
		if may(in.Create[i]) {
			in.Create = slices.Delete(in.Create, i, i+1)
			withdrawn++
		}
	}
	return withdrawn
}

// obsoleteDeletions returns how many machines were recorded for deletion and are kept.
func obsoleteDeletions(w World, in machinefacts.Intents) (n int) {
	for _, m := range w.Owned {
		if isDeletionObsolete(w, in, m) {
			n++
		}
	}
	return n
}

// grew reports whether a new intent was added.
func grew(before, after machinefacts.Intents) bool {
	return after.Next != before.Next ||
		slices.ContainsFunc(after.Delete, func(d machinefacts.Deletion) bool { return !before.Deletes(d.UID) })
}

// isStale reports whether the machine of a recorded creation is being deleted already. Such an
// intent is removed at once: otherwise the machine would be created again under its ordinal. Other
// observed intents are removed when all are observed, or together with new ones, so that a batch
// costs two writes.
func isStale(w World, in machinefacts.Intents) bool {
	return len(in.Create) > 0 && slices.ContainsFunc(w.Owned, func(m *v1alpha1.Machine) bool {
		o, ok := machinefacts.OrdinalIn(w.Set, m)
		return ok && m.DeletionTimestamp != nil && slices.Contains(in.Create, o)
	})
}

// settled reports whether no intent is left to be observed, and no reason to be recorded on its
// machine.
func settled(in machinefacts.Intents) bool {
	return len(in.Create) == 0 && len(in.Delete) == 0 && len(in.Leaving) == 0
}

// nextOrdinal returns an ordinal that is higher than those of all machines, if the API server has
// none of that name.
func nextOrdinal(w World, in machinefacts.Intents) int64 {
	next := in.Next
	for _, m := range w.Owned {
		if o, ok := machinefacts.Ordinal(m); ok {
			next = max(next, o+1)
		}
	}
	return next
}

// isObsolete reports whether a machine no longer has to be deleted: deletions are held, or it was
// recorded because it had failed or was outdated, and has recovered, or the set is frozen and could
// not replace it.
func isObsolete(w World, d machinefacts.Deletion, m *v1alpha1.Machine) bool {
	return holds(w, m) || d.Failed && (!machinefacts.HasFailed(m) && !isOutdated(w, m) || machinefacts.IsFrozen(w.Set))
}

// isDeletionObsolete reports whether the machine is recorded for deletion and, in its current
// state, does not have to be deleted.
func isDeletionObsolete(w World, in machinefacts.Intents, m *v1alpha1.Machine) bool {
	return m.DeletionTimestamp == nil &&
		slices.ContainsFunc(in.Delete, func(d machinefacts.Deletion) bool { return d.UID == m.UID && isObsolete(w, d, m) })
}
