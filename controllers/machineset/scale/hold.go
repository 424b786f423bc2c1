package scale

import (
	"slices"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinefacts"
)

// holds reports whether a machine must not be deleted because deletions are held. One that was recorded for deletion before and has no
// deletion timestamp stays, too.
func holds(w World, m *v1alpha1.Machine) bool {
	return w.Held && (w.Undecodable[m.UID] || !machinefacts.NeverRan(m))
}

// deletable returns the machines that may be deleted.
func deletable(w World, machines []*v1alpha1.Machine) []*v1alpha1.Machine {
	return slices.DeleteFunc(slices.Clone(machines), func(m *v1alpha1.Machine) bool { return holds(w, m) })
}
