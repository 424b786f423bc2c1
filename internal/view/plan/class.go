package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/nodesync"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
)

// KindClass is the kind of MachineClasses.
const KindClass = "MachineClass"

// ClassChange is a change of a MachineClass: the one that the API server has, nil if there is none,
// and as it will be.
type ClassChange struct{ Before, After *v1alpha1.MachineClass }

// OfClass returns the plan of a change of a MachineClass. It replaces no machine: VMs that exist
// keep what they were created with.
func OfClass(in Input, c ClassChange) Plan {
	p := Plan{
		Object: view.Object{Kind: KindClass, Namespace: c.After.Namespace, Name: c.After.Name}, Creates: c.Before == nil,
		Changes: []FieldChange{}, Steps: []Step{}, Ends: true, Time: Time{Known: true}, Missing: in.Snapshot.Missing,
	}
	if c.Before != nil {
		p.Changes = FieldChanges(c.Before, c.After, func(path []string, alone *v1alpha1.MachineClass) Effect {
			return effectOfClass(c, path, alone)
		})
	}
	users := usersOf(in.Snapshot, c.After)
	waiting, vms := 0, 0
	for _, m := range in.Snapshot.Machines {
		if m.Namespace != c.After.Namespace || m.Spec.Class.Name != c.After.Name {
			continue
		}
		p.Machines.Before++
		if m.Spec.ProviderID != "" {
			vms++
		}
		if machinefacts.NeverRan(m) && m.Spec.ProviderID == "" && m.DeletionTimestamp == nil {
			waiting++
		}
	}
	p.Machines.After, p.Machines.Kept = p.Machines.Before, p.Machines.Before
	p.VMs, p.Machines.Most = VMs{Before: vms, After: vms + waiting}, vms+waiting
	p.Machines.Least = p.Machines.Before - waiting
	p.Summary = fmt.Sprintf("Machines: %d kept, and none is replaced", p.Machines.Before)
	switch {
	case len(users) == 0:
		p.Notes = append(p.Notes, "no MachineDeployment or MachineSet creates machines of the class")
	case c.Before == nil:
		p.Notes = append(p.Notes, fmt.Sprintf("the class does not exist yet; %s wait for it", strings.Join(users, ", ")))
	case slices.ContainsFunc(p.Changes, func(f FieldChange) bool { return f.Effect == NewMachines }):
		p.Notes = append(p.Notes, fmt.Sprintf("VMs that are created from now on have it, of %s; to replace the others: "+
			"kubectl mcf rollout restart, or a MachineClass of another name in the template", strings.Join(users, ", ")))
	}
	if waiting > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("%d machines have no VM yet: those get it with the class as it is at their next try", waiting))
	}
	if c.Before != nil && c.Before.Provider != c.After.Provider && vms > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("%d VMs exist at the provider %s, and calls for them would go to %s, which does not have them; "+
			"create a class of another name instead", vms, cmp.Or(c.Before.Provider, "none"), cmp.Or(c.After.Provider, "none")))
	}
	return p
}

// effectOfClass returns what the change of one field of a class does. What reaches Nodes that exist
// is what nodesync applies to them.
func effectOfClass(c ClassChange, path []string, alone *v1alpha1.MachineClass) Effect {
	node := &corev1.Node{}
	was := nodesync.Wanted{Class: c.Before}.Apply(node)
	switch {
	case alone != nil && !machinefacts.Same(was, nodesync.Wanted{Class: alone}.Apply(node)):
		return Writes
	case path[0] == "providerSpec", path[0] == "nodeTemplate":
		return NewMachines
	}
	return Steers
}

// usersOf returns the MachineDeployments, and the MachineSets without one, whose templates name a
// class.
func usersOf(s view.Snapshot, class *v1alpha1.MachineClass) (users []string) {
	for _, d := range s.Deployments {
		if d.Namespace == class.Namespace && d.Spec.Template.Spec.Class.Name == class.Name {
			users = append(users, "MachineDeployment "+d.Name)
		}
	}
	for _, set := range s.Sets {
		if set.Namespace == class.Namespace && len(set.OwnerReferences) == 0 && set.Spec.Template.Spec.Class.Name == class.Name {
			users = append(users, "MachineSet "+set.Name)
		}
	}
	slices.Sort(users)
	return users
}
