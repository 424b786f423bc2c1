package machine

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/nodesync"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption/recorded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/ownerref"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
)

// parents find what a machine's set and root require of it, as the cache shows them.
type parents struct {
	view *objectcache.View
	// sets has the versions of MachineSets that this process has written; nil for none.
	sets              *patch.Latest[*v1alpha1.MachineSet]
	noComponentsTaint bool // of the fleet
}

// observe records them in the world.
func (p *parents) observe(is *pass) {
	m := is.world.Machine
	is.world.Disruption, is.world.Rollout, is.world.NoComponentsTaint = p.disruption(m), p.rollout(m), p.omitsComponentsTaint(m)
	is.world.Decided = p.decided(m)
}

// disruption returns whether the machine may be replaced because it is unhealthy, as recorded on
// its root.
func (p *parents) disruption(m *v1alpha1.Machine) lifecycle.DisruptionFact {
	switch {
	case metav1.GetControllerOfNoCopy(m) == nil:
		return lifecycle.DisruptionUnneeded
	case recorded.Has(p.view, m):
		return lifecycle.DisruptionAllowed
	}
	return lifecycle.DisruptionPending
}

// rollout returns what the machine's Node must carry while machines are replaced, as derived from
// its set; nil when the cache does not show the set.
func (p *parents) rollout(m *v1alpha1.Machine) *nodesync.Rollout {
	set, ok := ownerref.SetOf(p.view, m)
	if !ok {
		return nil
	}
	carried := nodesync.RolloutOf(set)
	return &carried
}

// omitsComponentsTaint reports whether the machine's Node does not get the taint
// critical-components-not-ready after it was updated in place. The fleet's setting applies to a
// machine without a root, or with one that the cache does not show.
func (p *parents) omitsComponentsTaint(m *v1alpha1.Machine) bool {
	if root, ok := ownerref.RootOf(p.view, m); ok {
		return machinefacts.OmitsComponentsTaint(root, p.noComponentsTaint)
	}
	return p.noComponentsTaint
}

// decided returns why the machine's set has deleted the machine; the zero value when the set has
// not. The set's newest version counts: the cache may show the deletion of a machine before the
// intent to delete it.
func (p *parents) decided(m *v1alpha1.Machine) receipt.Reason {
	if m.DeletionTimestamp == nil {
		return receipt.Reason{}
	}
	set, ok := ownerref.SetOf(p.view, m)
	if !ok {
		return receipt.Reason{}
	}
	if p.sets != nil {
		set = p.sets.Newest(set)
	}
	// They are parsed only where they may name the machine, since each pass of it comes here.
	if strings.Contains(set.Annotations[v1alpha1.AnnotationIntents], string(m.UID)) {
		if in, err := machinefacts.ReadIntents(set); err == nil { // the controller of sets reports the error
			if why, known := in.Reason(m.UID); known {
				return why
			}
		}
	}
	if set.DeletionTimestamp != nil && !m.DeletionTimestamp.Before(set.DeletionTimestamp) {
		return machinefacts.ParentDeleted(set)
	}
	return receipt.Reason{}
}

// withRoot returns a machine and its root, if it has one that the cache shows.
func (p *parents) withRoot(m *v1alpha1.Machine) []runtime.Object {
	about := []runtime.Object{m}
	if root, ok := ownerref.RootOf(p.view, m); ok {
		if root, ok := root.(runtime.Object); ok {
			about = append(about, root)
		}
	}
	return about
}

// root returns the UID of a machine's root; "" while the view does not show it.
func (p *parents) root(key types.NamespacedName) types.UID {
	m, known := p.view.Machines.Get(key)
	if !known {
		return ""
	}
	return ownerref.RootUIDOf(p.view, m)
}
