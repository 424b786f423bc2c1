package join

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/join/stamp"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/ownerref"
)

func (c *Controller) watch() {
	c.cfg.Pools.OnPool(c.poolChanged)
	c.cfg.View.Deployments.OnChange(c.deploymentChanged)
	c.cfg.View.Sets.OnChange(c.setChanged)
	c.cfg.View.Machines.OnChange(c.machineChanged)
	c.cfg.Cluster.Nodes.OnChange(c.nodeChanged)
}

// poolChanged enqueues a pool. A pool that no longer refers to a MachineDeployment leaves it to the
// next one.
func (c *Controller) poolChanged(before, after *v1alpha1.MachineConfigPool) {
	for _, pool := range []*v1alpha1.MachineConfigPool{before, after} {
		if pool == nil || pool.Spec.MachineRef == nil {
			continue
		}
		c.enqueue(*pool.Spec.MachineRef)
	}
}

// enqueue enqueues the pools that refer to an object.
func (c *Controller) enqueue(root v1alpha1.MachineReference) {
	for _, pool := range stamp.Referring(c.cfg.Pools.Pools(), root) {
		c.runner.Enqueue(types.NamespacedName{Name: pool.Name})
	}
}

// deploymentChanged enqueues the pools of a MachineDeployment that appears, or whose spec has
// changed.
func (c *Controller) deploymentChanged(before, after *machinev1alpha1.MachineDeployment) {
	if after == nil {
		c.deployments.Forget(before.UID)
		return
	}
	if before == nil || before.Generation != after.Generation {
		c.enqueue(stamp.ReferenceTo(after))
	}
}

// setChanged enqueues the pools of the MachineDeployment of a set that appears: Nodes may be
// updated to it.
func (c *Controller) setChanged(before, after *machinev1alpha1.MachineSet) {
	if before != nil || after == nil {
		return
	}
	if d := metav1.GetControllerOfNoCopy(after); d != nil && d.Kind == stamp.KindDeployment {
		c.enqueue(v1alpha1.MachineReference{Kind: d.Kind, Namespace: after.Namespace, Name: d.Name})
	}
}

// machineChanged enqueues the pools of a machine that has got a Node, or has changed its set.
func (c *Controller) machineChanged(before, after *machinev1alpha1.Machine) {
	if after == nil || before != nil && before.Labels[machinev1alpha1.LabelNode] == after.Labels[machinev1alpha1.LabelNode] &&
		before.Annotations[v1alpha1.AnnotationMachineConfig] == after.Annotations[v1alpha1.AnnotationMachineConfig] {
		return
	}
	c.enqueuePoolsOf(after)
}

func (c *Controller) enqueuePoolsOf(m *machinev1alpha1.Machine) {
	root, known := ownerref.RootOf(c.cfg.View, m)
	if d, ok := root.(*machinev1alpha1.MachineDeployment); known && ok {
		c.enqueue(stamp.ReferenceTo(d))
	}
}

// nodeChanged enqueues the pools of a Node when what decisions use has changed; most changes are
// heartbeats.
func (c *Controller) nodeChanged(before, after *corev1.Node) {
	if after == nil {
		c.nodes.Forget(before.UID)
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.failing, before.UID)
		return
	}
	if before != nil && c.facts(before) == c.facts(after) {
		return
	}
	for _, m := range c.cfg.View.MachinesOnNode(after.Name) {
		c.enqueuePoolsOf(m)
	}
}

// facts contains what decisions use of a Node.
type facts struct {
	current, desired, state, reason, drain, drained, to, machine, stage, result string
	cordoned, ready                                                             bool
}

func (c *Controller) facts(node *corev1.Node) facts {
	a, p := node.Annotations, c.cfg.Prefix
	ready := machinefacts.NodeCondition(node, corev1.NodeReady)
	return facts{
		current: a[p.CurrentConfig()], desired: a[p.DesiredConfig()], state: a[p.State()], reason: a[p.Reason()],
		drain: a[p.DesiredDrain()], drained: a[p.LastAppliedDrain()],
		to: a[machinev1alpha1.AnnotationUpdateTo], machine: a[machinev1alpha1.AnnotationMachine],
		stage: machinefacts.InPlaceStage(node), result: node.Labels[machinev1alpha1.LabelUpdateResult],
		cordoned: node.Spec.Unschedulable, ready: ready != nil && ready.Status == corev1.ConditionTrue,
	}
}
