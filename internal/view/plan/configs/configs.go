package configs

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/join/stamp"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/kubeletconfig/fold"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/render/merge"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/update/candidates"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinedeployment/rollout"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/plan"
)

// planner plans one change.
type planner struct {
	in      plan.Input
	objects Objects // before the change
	members candidates.Membership
	plan    plan.Plan
	times   []plan.Time // of each pool
}

// Of returns the plan of changes that are applied at the same moment, of which there is one at
// least. Errors: the simulation does not end, which is a defect.
func Of(in plan.Input, o Objects, changes ...Change) (plan.Plan, error) {
	p := planner{in: in, objects: o, members: candidates.Members(o.Pools, in.Snapshot.Nodes, referring(in.Snapshot, o.Pools))}
	p.plan = plan.Plan{Changes: []plan.FieldChange{}, Steps: []plan.Step{}, Ends: true, Creates: true, Missing: in.Snapshot.Missing}
	changed := o
	for i, c := range changes {
		p.describe(c, len(changes) > 1)
		if c.KubeletAfter != nil && c.KubeletBefore == nil {
			c.KubeletAfter = c.KubeletAfter.DeepCopy()
			c.KubeletAfter.CreationTimestamp = metav1.NewTime(in.Snapshot.Now) // the oldest is folded first
			changes[i] = c
		}
		changed = changed.applied(c)
	}
	nodes := 0
	for _, pool := range affected(o.Pools, changes) {
		of, err := p.pool(changed, pool)
		if err != nil {
			return p.plan, err
		}
		p.plan.Pools = append(p.plan.Pools, of)
		if of.Problem == "" && of.Before != of.After {
			nodes += of.Nodes
		}
	}
	slices.SortStableFunc(p.plan.Steps, func(a, b plan.Step) int { return cmp.Compare(a.After.Duration, b.After.Duration) })
	p.plan.VMs, p.plan.Machines.Most, p.plan.Zones = plan.CountVMs(p.plan.VMChanges)
	p.plan.Time = plan.Longest(p.times...) // pools are brought to their targets at the same time
	p.plan.Time.Source = in.Durations.Source
	switch {
	case len(p.plan.Pools) == 0:
		p.plan.Summary = "Nodes: none, because no MachineConfigPool selects " + map[bool]string{true: "it", false: "them"}[len(changes) == 1]
	case nodes == 0:
		p.plan.Summary = "Nodes: no Node gets another configuration"
	default:
		p.plan.Summary = fmt.Sprintf("Nodes: %d get another configuration", nodes)
	}
	return p.plan, nil
}

// describe records what is changed, alone or as one of several. Values are left out: contents of
// files may be secret.
func (p *planner) describe(c Change, isOneOfSeveral bool) {
	var fields []plan.FieldChange
	var of view.Object
	creates := c.ConfigBefore == nil && c.KubeletBefore == nil
	if c.ConfigAfter != nil {
		of = view.Object{Kind: "MachineConfig", Name: c.ConfigAfter.Name}
	} else {
		of = view.Object{Kind: "KubeletConfig", Name: c.KubeletAfter.Name}
	}
	switch {
	case creates && isOneOfSeveral:
		fields = []plan.FieldChange{{Path: "metadata.name", After: strconv.Quote(of.Name), Effect: plan.Configures}}
	case creates:
	case c.ConfigBefore != nil:
		fields = plan.FieldChanges(c.ConfigBefore, c.ConfigAfter, configures[v1alpha1.MachineConfig])
	default:
		fields = plan.FieldChanges(c.KubeletBefore, c.KubeletAfter, configures[v1alpha1.KubeletConfig])
	}
	for _, change := range fields {
		if strings.HasPrefix(change.Path, "spec.config") {
			change.Before, change.After = "", ""
		}
		if isOneOfSeveral {
			change.Of = of.Kind + " " + of.Name
		}
		p.plan.Changes = append(p.plan.Changes, change)
	}
	p.plan.Creates = p.plan.Creates && creates
	if p.plan.Object == (view.Object{}) {
		p.plan.Object = of
		return
	}
	p.plan.With = append(p.plan.With, of)
}

// configures is the effect of each field of a configuration.
func configures[T any]([]string, *T) plan.Effect { return plan.Configures }

// affected returns the pools that changes concern, by name.
func affected(pools []*v1alpha1.MachineConfigPool, changes []Change) (all []*v1alpha1.MachineConfigPool) {
	var names []string
	var folded []*v1alpha1.KubeletConfig
	for _, c := range changes {
		if c.ConfigAfter != nil {
			var before *metav1.ObjectMeta
			if c.ConfigBefore != nil {
				before = &c.ConfigBefore.ObjectMeta
			}
			names = append(names, merge.Affected(pools, before, &c.ConfigAfter.ObjectMeta)...)
		}
		for _, config := range []*v1alpha1.KubeletConfig{c.KubeletBefore, c.KubeletAfter} {
			if config != nil {
				folded = append(folded, config)
			}
		}
	}
	for _, pool := range pools {
		if len(fold.Select(pool, folded)) > 0 || slices.Contains(names, pool.Name) {
			all = append(all, pool)
		}
	}
	slices.SortFunc(all, func(a, b *v1alpha1.MachineConfigPool) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// referring returns the pools that refer to the MachineDeployment, or the MachineSet, of the
// machine of each Node.
func referring(s view.Snapshot, pools []*v1alpha1.MachineConfigPool) map[string][]string {
	all := map[string][]string{}
	for _, node := range s.Nodes {
		m, err := s.FindMachine(node)
		if err != nil {
			continue // it has no machine here
		}
		root := rootOf(s, m)
		if root == nil {
			continue
		}
		for _, pool := range stamp.Referring(pools, stamp.ReferenceTo(root)) {
			all[node.Name] = append(all[node.Name], pool.Name)
		}
	}
	return all
}

// rootOf returns the MachineDeployment of a machine, or its MachineSet; nil if they are not known.
func rootOf(s view.Snapshot, m *machinev1alpha1.Machine) metav1.Object {
	for _, set := range s.Sets {
		if !metav1.IsControlledBy(m, set) {
			continue
		}
		for _, d := range s.Deployments {
			if metav1.IsControlledBy(set, d) {
				return d
			}
		}
		return set
	}
	return nil
}

// deploymentOf returns the MachineDeployment that a pool refers to; nil if it is not known.
func (p *planner) deploymentOf(pool *v1alpha1.MachineConfigPool) *machinev1alpha1.MachineDeployment {
	ref := pool.Spec.MachineRef
	for _, d := range p.in.Snapshot.Deployments {
		if ref != nil && ref.Kind == stamp.KindDeployment && d.Namespace == ref.Namespace && d.Name == ref.Name {
			return d
		}
	}
	return nil
}

// pool plans what the change does to a pool.
func (p *planner) pool(changed Objects, pool *v1alpha1.MachineConfigPool) (of plan.Pool, err error) {
	target := pool.Status.CurrentMachineConfig
	nodes := p.members.Of[pool.Name]
	of = plan.Pool{Name: pool.Name, Before: target, After: target, Nodes: len(nodes)}
	d := p.deploymentOf(pool)
	objects, problem := changed.folded(pool)
	if of.Problem = problem; problem != "" {
		return of, nil
	}
	next, problem := objects.render(pool, stamp.IsByDeployment(pool) && d != nil && !rollout.IsInPlace(d))
	if of.Problem = problem; problem != "" || next == nil || next.Name == target {
		return of, nil
	}
	of.After = next.Name
	before := p.objects.find(target)
	if before == nil && len(nodes) > 0 {
		before = p.objects.find(nodes[0].Annotations[v1alpha1.DaemonPrefix.CurrentConfig()])
	}
	d0 := differ(before, next)
	of.Reboot, of.Restart, of.Reload, of.Changes = d0.actions.Reboot, d0.actions.Restart, d0.actions.Reload, d0.changes
	if d0.problem != "" {
		p.plan.Notes = append(p.plan.Notes, fmt.Sprintf("pool %s: %s", pool.Name, d0.problem))
	}
	if stamp.IsByDeployment(pool) {
		return of, p.byDeployment(pool, d, &of)
	}
	return of, p.byDaemons(pool, next, nodes)
}

// byDeployment plans the rollout of a MachineDeployment whose template gets the configuration.
func (p *planner) byDeployment(pool *v1alpha1.MachineConfigPool, d *machinev1alpha1.MachineDeployment, of *plan.Pool) error {
	moved := pool.DeepCopy()
	moved.Status.CurrentMachineConfig = of.After
	config, hold := stamp.Stamp(stamp.World{Pool: moved, Live: true, Pools: p.objects.Pools, Deployment: d})
	if hold != "" {
		of.Problem = "the template of its MachineDeployment does not get it: " + string(hold)
		return nil
	}
	of.By = d.Namespace + "/" + d.Name
	rolled, err := plan.OfDeployment(p.in, plan.Change{Before: d, After: stamp.Stamped(d, config)})
	if err != nil {
		return err
	}
	p.plan.Steps = append(p.plan.Steps, rolled.Steps...)
	p.plan.Blocked, p.plan.InForce = append(p.plan.Blocked, rolled.Blocked...), append(p.plan.InForce, rolled.InForce...)
	p.plan.VMChanges = append(p.plan.VMChanges, rolled.VMChanges...)
	p.plan.Machines.Add(rolled.Machines)
	p.plan.Ends, p.plan.Waits = p.plan.Ends && rolled.Ends, cmp.Or(p.plan.Waits, rolled.Waits)
	p.times = append(p.times, rolled.Time)
	return nil
}

// podsOn returns the pods of a Node.
func (p *planner) podsOn(node string) (pods []*corev1.Pod) {
	for _, pod := range p.in.Snapshot.Pods {
		if pod.Spec.NodeName == node {
			pods = append(pods, pod)
		}
	}
	return pods
}
