package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinedeployment/rollout"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// Tree has roots and what is below them.
type Tree struct {
	Roots   []Branch  `json:"roots"`
	Missing []Missing `json:"missing,omitempty"`
}

// Branch is an object of a tree, or several equal ones.
type Branch struct {
	Object

	// Names of all objects that the branch stands for, if there are several.
	Names []string `json:"names,omitempty"`
	// Ready is how many machines are ready of how many that are desired; of a machine and a Node
	// whether it is.
	Ready string `json:"ready"`
	// State is one word, or a few.
	State string `json:"state,omitempty"`
	// Level of the worst trouble of the object itself; "" without any.
	Level Level `json:"level,omitempty"`
	// Since is the age of the trouble, or else of the object.
	Since    time.Time `json:"since,omitzero"`
	Message  string    `json:"message,omitempty"`
	Troubles []Trouble `json:"troubles,omitempty"`
	Children []Branch  `json:"children,omitempty"`
}

// TreeOptions select what a tree shows.
type TreeOptions struct {
	// Name of the only root; "" shows all.
	Name string
	// Unfolded has each machine and Node on a separate branch.
	Unfolded bool
	// Empty shows old MachineSets without machines, too.
	Empty bool
}

// TreeOf returns the tree of the snapshot's MachineDeployments, and of MachineSets and Machines
// without a controller.
func TreeOf(s Snapshot, options TreeOptions) Tree {
	x, tree := indexOf(s), Tree{Roots: []Branch{}, Missing: s.Missing}
	wanted := func(name string) bool { return options.Name == "" || options.Name == name }
	b := builder{s, x, options}
	for _, d := range byName(s.Deployments) {
		if wanted(d.Name) {
			tree.Roots = append(tree.Roots, b.deployment(d))
		}
	}
	for _, set := range x.sets[""] {
		if wanted(set.Name) {
			tree.Roots = append(tree.Roots, b.set(set, ""))
		}
	}
	machines := slices.DeleteFunc(slices.Clone(x.machines[""]), func(m *v1alpha1.Machine) bool { return !wanted(m.Name) })
	tree.Roots = append(tree.Roots, b.machines(machines)...)
	return tree
}

// builder builds the branches of a tree.
type builder struct {
	s       Snapshot
	x       index
	options TreeOptions
}

func (b builder) deployment(d *v1alpha1.MachineDeployment) Branch {
	branch := Branch{
		Object: objectOf(KindDeployment, d), Ready: fmt.Sprintf("%d/%d", d.Status.AvailableReplicas, d.Spec.Replicas),
		Troubles: DeploymentTroubles(d, b.s.Now), Since: d.CreationTimestamp.Time,
	}
	sets := b.x.sets[d.UID]
	newSet := rollout.NewSet(d, sets)
	if _, is := rollout.UnderWay(d, sets); is {
		branch.State = fmt.Sprintf("RollingOut %d/%d", d.Status.UpdatedReplicas, d.Spec.Replicas)
	}
	slices.SortStableFunc(sets, func(a, b *v1alpha1.MachineSet) int {
		return cmp.Compare(machinefacts.Revision(b), machinefacts.Revision(a)) // the newest first
	})
	for _, set := range sets {
		role := "old"
		if set == newSet {
			role = "new"
		}
		isEmpty := set.Spec.Replicas == 0 && set.Status.Replicas == 0 && len(b.x.machines[set.UID]) == 0
		if role == "old" && isEmpty && !b.options.Empty {
			continue
		}
		branch.Children = append(branch.Children, b.set(set, role))
	}
	return summarized(branch)
}

func (b builder) set(set *v1alpha1.MachineSet, role string) Branch {
	branch := Branch{
		Object: objectOf(KindSet, set), Ready: fmt.Sprintf("%d/%d", set.Status.AvailableReplicas, set.Spec.Replicas),
		Troubles: SetTroubles(set, b.s.Now), Since: set.CreationTimestamp.Time, State: role,
	}
	if revision := machinefacts.Revision(set); revision > 0 {
		branch.State = fmt.Sprintf("%s, revision %d", role, revision)
	}
	branch.Children = b.machines(b.x.machines[set.UID])
	return summarized(branch)
}

// summarized returns the branch with the level, age and message of its worst trouble.
func summarized(b Branch) Branch {
	if len(b.Troubles) == 0 {
		return b
	}
	worst := slices.MinFunc(b.Troubles, func(x, y Trouble) int { return cmp.Compare(x.Level.rank(), y.Level.rank()) })
	b.Level, b.Message = worst.Level, worst.Message
	if b.State == "" || worst.Level != Note {
		b.State = worst.Reason
	}
	if !worst.Since.IsZero() {
		b.Since = worst.Since
	}
	return b
}

// machines returns the branches of machines: those with trouble first, and equal ones folded.
func (b builder) machines(machines []*v1alpha1.Machine) []Branch {
	var all []Branch
	for _, m := range machines {
		all = append(all, b.machine(m))
	}
	slices.SortStableFunc(all, func(x, y Branch) int { return cmp.Compare(worstOf(x).rank(), worstOf(y).rank()) })
	if b.options.Unfolded {
		return all
	}
	return folded(all)
}

// worstOf returns the worst level of a machine and its Node.
func worstOf(b Branch) Level {
	worst := b.Level
	for _, child := range b.Children {
		if child.Level.rank() < worst.rank() {
			worst = child.Level
		}
	}
	return worst
}

func (b builder) machine(m *v1alpha1.Machine) Branch {
	branch := Branch{
		Object: objectOf(KindMachine, m), Ready: strconv.FormatBool(machinefacts.IsReady(m)), State: StateOf(m),
		Troubles: MachineTroubles(m, b.s.Now), Since: m.CreationTimestamp.Time,
	}
	branch = summarized(branch)
	name := m.Labels[v1alpha1.LabelNode]
	if name == "" || b.s.Misses(MissingNodes) {
		return branch
	}
	node := b.x.nodes[name]
	troubles := nodeTroubles(m, node)
	if node == nil && len(troubles) == 0 || node != nil && len(troubles) == 0 && !b.options.Unfolded {
		return branch // it has not joined yet, or there is nothing to say of it
	}
	branch.Children = []Branch{nodeBranch(name, node, troubles)}
	return branch
}

func nodeBranch(name string, node *corev1.Node, troubles []Trouble) Branch {
	branch := Branch{Object: Object{Kind: KindNode, Name: name}, Ready: "false", Troubles: troubles}
	if node != nil {
		branch.Since = node.CreationTimestamp.Time
		ready := machinefacts.NodeCondition(node, corev1.NodeReady)
		branch.Ready = strconv.FormatBool(ready != nil && ready.Status == corev1.ConditionTrue)
	}
	return summarized(branch)
}

// folded returns branches of which equal ones are one: the same state and level, with Nodes of the
// same state. It has the age and the message of the one that is in that state the longest.
func folded(all []Branch) []Branch {
	var result []Branch
	at := map[string]int{}
	for _, branch := range all {
		key := likeness(branch)
		i, known := at[key]
		if !known {
			at[key] = len(result)
			result = append(result, branch)
			continue
		}
		group := &result[i]
		if len(group.Names) == 0 {
			group.Names = []string{group.Name}
		}
		group.Names = append(group.Names, branch.Name)
		for j := range group.Children {
			child := &group.Children[j]
			if len(child.Names) == 0 {
				child.Names = []string{child.Name}
			}
			child.Names = append(child.Names, branch.Children[j].Name)
		}
		if !branch.Since.IsZero() && branch.Since.Before(group.Since) {
			group.Since, group.Message = branch.Since, branch.Message
		}
	}
	return result
}

// likeness returns a text that is the same for branches that are folded into one.
func likeness(b Branch) string {
	parts := []string{b.Kind, b.Ready, b.State, string(b.Level)}
	for _, t := range b.Troubles {
		parts = append(parts, t.Reason)
	}
	for _, child := range b.Children {
		parts = append(parts, "/", likeness(child))
	}
	return strings.Join(parts, " ")
}
