package scale

import (
	"slices"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// isObsolete reports whether a machine no longer has to be deleted: deletions are held, or it was recorded because it had failed
// or was outdated, and has recovered, or the set is frozen and could not replace it.
func isObsolete(w World, d machinefacts.Deletion, m *v1alpha1.Machine) bool {
	return holds(w, m) || d.Failed && (!machinefacts.HasFailed(m) && !isOutdated(w, m) || machinefacts.IsFrozen(w.Set))
}

// isDeletionObsolete reports whether the machine is recorded for deletion and, in its current state, does not have to be deleted.
func isDeletionObsolete(w World, in machinefacts.Intents, m *v1alpha1.Machine) bool {
	return m.DeletionTimestamp == nil && slices.ContainsFunc(in.Delete, func(d machinefacts.Deletion) bool { return d.UID == m.UID && isObsolete(w, d, m) })
}
