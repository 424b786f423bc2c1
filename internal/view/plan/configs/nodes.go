package configs

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/update/candidates"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/plan"
)

const (
	prefix = v1alpha1.DaemonPrefix
	// someReboot is how long a reboot takes if that is not known, and applies how long a daemon takes
	// without one.
	someReboot = 5 * time.Minute
	applies    = 10 * time.Second
	// runs is from how many runs the total time is computed.
	runs = 20
	// mostMoments is at how many moments something happens in a run, at the most.
	mostMoments = 100_000
)

var errEndless = errors.New("expected the simulation of the pool to end, and it has not; report this with its MachineConfigs and Nodes")

// rolling is a run in which the daemons of a pool bring its Nodes to a target.
type rolling struct {
	*planner

	pool   *v1alpha1.MachineConfigPool
	target *v1alpha1.RenderedMachineConfig
	nodes  []*corev1.Node
	number int
	now    time.Time
	due    map[string]time.Time // when something happens on a Node
	steps  []plan.Step
	drains []plan.BlockedDrain
}

// byDaemons plans how the daemons of a pool bring its Nodes to a target.
func (p *planner) byDaemons(pool *v1alpha1.MachineConfigPool, target *v1alpha1.RenderedMachineConfig, nodes []*corev1.Node) error {
	var took []time.Duration
	for number := range runs + 1 {
		r := &rolling{planner: p, pool: pool.DeepCopy(), target: target, number: number, now: p.in.Snapshot.Now, due: map[string]time.Time{}}
		r.pool.Status.CurrentMachineConfig = target.Name
		for _, node := range nodes {
			r.nodes = append(r.nodes, node.DeepCopy())
		}
		end, err := r.run()
		if err != nil {
			return err
		}
		if number > 0 {
			took = append(took, end)
			continue
		}
		p.plan.Steps, p.plan.Blocked = append(p.plan.Steps, r.steps...), append(p.plan.Blocked, r.drains...)
		if waiting := r.waiting(); len(waiting) > 0 {
			p.plan.Ends = false
			p.plan.Waits = fmt.Sprintf("%d Nodes of pool %s that are not available, or have no daemon: %s", len(waiting), pool.Name, waiting[0])
		}
	}
	of := plan.TimeOf(took, "")
	of.Known = p.isTimed(target, nodes)
	p.times = append(p.times, of)
	return nil
}

// isTimed reports whether the durations are known that the Nodes need.
func (p *planner) isTimed(target *v1alpha1.RenderedMachineConfig, nodes []*corev1.Node) bool {
	return p.in.Durations.Update.Count() > 0 || !slices.ContainsFunc(nodes, func(n *corev1.Node) bool {
		return differ(p.objects.find(n.Annotations[prefix.CurrentConfig()]), target).actions.Reboot
	})
}

// run runs until nothing changes any more, and returns how long that takes.
func (r *rolling) run() (took time.Duration, err error) {
	last := r.now
	for range mostMoments {
		for r.pass() {
		}
		next, at := "", time.Time{}
		for name, due := range r.due {
			if next == "" || due.Before(at) || due.Equal(at) && name < next {
				next, at = name, due
			}
		}
		if next == "" {
			return last.Sub(r.in.Snapshot.Now), nil
		}
		delete(r.due, next)
		r.now, last = at, at
		r.happens(r.find(next))
	}
	return 0, errEndless
}

// pass has the pool decided once, and carries the verdict out. It reports whether something has
// changed.
func (r *rolling) pass() (changed bool) {
	v := candidates.Decide(candidates.World{Now: r.now, Pool: r.pool, Nodes: r.nodes, Live: true, Prefix: prefix})
	for _, a := range v.Assign {
		r.assign(r.find(a.Node.Name))
		changed = true
	}
	for _, q := range v.Requests {
		if node := r.find(q.Node.Name); q.Do == candidates.Drain && q.Begins() {
			r.drain(node)
			changed = true
		}
	}
	return changed
}

func (r *rolling) find(name string) *corev1.Node {
	for _, node := range r.nodes {
		if node.Name == name {
			return node
		}
	}
	return nil
}

// annotate sets an annotation of a Node of this run.
func annotate(node *corev1.Node, key, value string) {
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, key, value)
}

// assign has a Node get the target. Its daemon requests a drain if it has to reboot.
func (r *rolling) assign(node *corev1.Node) {
	current := node.Annotations[prefix.CurrentConfig()]
	annotate(node, prefix.DesiredConfig(), r.target.Name)
	if current == r.target.Name {
		return // it has booted with it
	}
	annotate(node, prefix.State(), string(v1alpha1.StateWorking))
	if differ(r.objects.find(current), r.target).actions.Reboot {
		annotate(node, prefix.DesiredDrain(), v1alpha1.DrainFor(r.target.Name))
		return
	}
	r.due[node.Name] = r.now.Add(applies)
}

// drain begins the drain of a Node.
func (r *rolling) drain(node *corev1.Node) {
	m, err := r.in.Snapshot.FindMachine(node)
	if err != nil {
		m = nil // the settings apply
	}
	order := drain.ForConfiguration(m, r.now, plan.SettingsOf(r.in.Snapshot))
	pods := r.podsOn(node.Name)
	b := plan.DrainOf(pods, r.in.Snapshot, order)
	b.Node = node.Name
	if m != nil {
		b.Machine = m.Name
	}
	if len(b.Pods) > 0 {
		r.drains = append(r.drains, b)
	}
	step := plan.Step{Do: plan.DrainNode, Name: node.Name, Set: r.pool.Name, Zone: node.Labels[corev1.LabelTopologyZone], Why: "it reboots"}
	for _, o := range drain.Outlooks(pods, r.in.Snapshot.Budgets, plan.SettingsOf(r.in.Snapshot)) {
		if !o.Stays {
			step.Pods = append(step.Pods, o.Pod.Namespace+"/"+o.Pod.Name)
		}
	}
	r.note(step)
	node.Spec.Unschedulable = true
	annotate(node, v1alpha1.AnnotationDrainSince, r.now.UTC().Format(time.RFC3339))
	took := r.in.Durations.Drain.Draw(r.number, "drain", node.Name, 0) + b.Takes()
	took += r.in.Durations.Update.Draw(r.number, "update", node.Name, someReboot)
	r.due[node.Name] = r.now.Add(took)
}

// happens has a Node be done with the target.
func (r *rolling) happens(node *corev1.Node) {
	d := differ(r.objects.find(node.Annotations[prefix.CurrentConfig()]), r.target)
	step := plan.Step{Do: plan.ApplyNode, Name: node.Name, Set: r.pool.Name, Zone: node.Labels[corev1.LabelTopologyZone], Why: words(d)}
	if d.actions.Reboot {
		step.Do = plan.RebootNode
		annotate(node, prefix.LastAppliedDrain(), node.Annotations[prefix.DesiredDrain()])
		node.Spec.Unschedulable = false
		delete(node.Annotations, v1alpha1.AnnotationDrainSince)
	}
	annotate(node, prefix.CurrentConfig(), r.target.Name)
	annotate(node, prefix.State(), string(v1alpha1.StateDone))
	r.note(step)
}

// words returns what a Node does, in words.
func words(d difference) string {
	a := d.actions
	switch {
	case a.Reboot:
		return "it reboots"
	case len(a.Restart) > 0:
		return "it restarts " + fmt.Sprint(a.Restart)
	case len(a.Reload) > 0:
		return "it reloads " + fmt.Sprint(a.Reload)
	case a.DaemonReload:
		return "systemd reads its units again"
	}
	return "nothing is restarted"
}

func (r *rolling) note(s plan.Step) {
	s.After.Duration = r.now.Sub(r.in.Snapshot.Now)
	r.steps = append(r.steps, s)
}

// waiting returns the names of the Nodes that do not have the target in the end.
func (r *rolling) waiting() (names []string) {
	for _, node := range r.nodes {
		if node.Annotations[prefix.CurrentConfig()] != r.target.Name {
			names = append(names, node.Name)
		}
	}
	slices.SortFunc(names, cmp.Compare[string])
	return names
}
