package machinedeployment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinedeployment/rollout"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/nodeowner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/ownerref"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
)

// updateKeys returns the labels and annotations of Nodes that belong to an in-place update.
func updateKeys() (labels [3]string, annotations [2]string) {
	return [3]string{v1alpha1.LabelCandidateForUpdate, v1alpha1.LabelSelectedForUpdate, v1alpha1.LabelUpdateResult},
		[2]string{v1alpha1.AnnotationUpdateTo, v1alpha1.AnnotationUpdateFailedReason}
}

// hasUpdateKeys reports whether a Node carries a label or an annotation of an in-place update.
func hasUpdateKeys(node *corev1.Node) bool {
	labels, annotations := updateKeys()
	return slices.ContainsFunc(labels[:], func(key string) bool { return node.Labels[key] != "" }) ||
		slices.ContainsFunc(annotations[:], func(key string) bool { return node.Annotations[key] != "" })
}

// observeTarget records the Nodes of the machines, or why they are not known.
func (c *Controller) observeTarget(w *rollout.World) error {
	nodes, err := c.observeNodes(w.Deployment, w.Machines)
	w.Nodes, w.NoTarget = nodes, err == nil && nodes == nil
	if _, is := errors.AsType[*target.UnavailableError](err); !is {
		return err
	}
	w.TargetProblem, _ = target.Problem(c.cfg.Targets, w.Deployment.Namespace)
	w.TargetPending = w.TargetProblem == "" // or it is available since
	w.Nodes = map[string]*corev1.Node{}
	return nil
}

// observeNodes returns the Nodes of the machines that have an effect on the rollout, by name; nil
// if there is no target cluster.
func (c *Controller) observeNodes(
	d *v1alpha1.MachineDeployment, machines map[types.UID][]*v1alpha1.Machine,
) (map[string]*corev1.Node, error) {
	cluster, err := c.cfg.Targets.For(d.Namespace)
	if err != nil {
		return nil, fmt.Errorf("find the target cluster of namespace %s: %w", d.Namespace, err)
	}
	if cluster == nil {
		return nil, nil
	}
	nodes, inPlace := map[string]*corev1.Node{}, rollout.IsInPlace(d)
	for _, all := range machines {
		for _, m := range all {
			node, known := cluster.Nodes.Get(types.NamespacedName{Name: m.Labels[v1alpha1.LabelNode]})
			if !known {
				continue
			}
			node = cluster.Written.Newest(node)
			if !inPlace && !hasUpdateKeys(node) {
				continue // the cheaper question first: for most nothing else is asked
			}
			if nodeowner.Relate(m, node) == nodeowner.Own { // else it belongs to another machine or VM, or is not claimed yet
				nodes[node.Name] = node
			}
		}
	}
	return nodes, nil
}

// nodeChanged enqueues the deployment of a Node's machine when something of an in-place update has
// changed, or when the Node was created or deleted and could be updated so.
func (c *Controller) nodeChanged(of *target.Cluster, before, after *corev1.Node) {
	node := after
	if after == nil {
		of.Written.Forget(before.UID)
		node = before
	}
	came := before == nil || after == nil
	if !came && !concernsUpdate(before, after) {
		return
	}
	for _, m := range c.cfg.View.MachinesOnNode(node.Name) {
		if !of.Serves(c.cfg.Targets, m.Namespace) {
			continue
		}
		root, known := ownerref.RootOf(c.cfg.View, m)
		if d, ok := root.(*v1alpha1.MachineDeployment); known && ok && (rollout.IsInPlace(d) || hasUpdateKeys(node) || !came) {
			c.runner.Enqueue(objectcache.Key(d))
		}
	}
}

// concernsUpdate reports whether a change of a Node concerns its in-place update; most changes are
// heartbeats.
func concernsUpdate(before, after *corev1.Node) bool {
	labels, annotations := updateKeys()
	return slices.ContainsFunc(append(labels[:], v1alpha1.LabelMachineName), func(key string) bool {
		return before.Labels[key] != after.Labels[key]
	}) ||
		slices.ContainsFunc(annotations[:], func(key string) bool { return before.Annotations[key] != after.Annotations[key] }) ||
		machinefacts.InPlaceStage(before) != machinefacts.InPlaceStage(after) ||
		machinefacts.AwaitsComponents(before) != machinefacts.AwaitsComponents(after)
}

// writeNodes writes to Nodes what an in-place update needs, or what ends it, and updates observed.
// A Node that has changed since it was observed is read again, and the next decision is about what
// was read.
func (c *Controller) writeNodes(ctx context.Context, namespace string, observed map[string]*corev1.Node, desired []*corev1.Node) error {
	cluster, err := c.cfg.Targets.For(namespace)
	if err != nil {
		return fmt.Errorf("find the target cluster of namespace %s: %w", namespace, err)
	}
	if cluster == nil {
		return fmt.Errorf("write Nodes of namespace %s: it has no target cluster any more", namespace)
	}
	nodes := cluster.Client.CoreV1().Nodes()
	for _, node := range desired {
		patch, err := nodePatch(observed[node.Name], node)
		if err != nil {
			return fmt.Errorf("encode patch of Node %s: %w", node.Name, err)
		}
		written, err := nodes.Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if apierrors.IsConflict(err) {
			written, err = nodes.Get(ctx, node.Name, metav1.GetOptions{})
		}
		switch {
		case apierrors.IsNotFound(err):
			delete(observed, node.Name)
			continue
		case err != nil:
			return fmt.Errorf("write Node %s: %w", node.Name, err)
		case written.Annotations[v1alpha1.AnnotationMachine] != node.Annotations[v1alpha1.AnnotationMachine]:
			delete(observed, node.Name) // it belongs to another machine now
			continue
		}
		cluster.Wrote(node, written)
		observed[node.Name] = written
	}
	return nil
}

// nodePatch returns the merge patch from an observed Node to the wanted one, for the observed
// version only.
func nodePatch(observed, desired *corev1.Node) ([]byte, error) {
	labels, annotations := updateKeys()
	metadata := map[string]any{
		"uid": observed.UID, "resourceVersion": observed.ResourceVersion,
		"labels": values(desired.Labels, labels[:]), "annotations": values(desired.Annotations, annotations[:]),
	}
	patch, spec := map[string]any{"metadata": metadata}, map[string]any{}
	if observed.Spec.Unschedulable != desired.Spec.Unschedulable {
		spec["unschedulable"] = desired.Spec.Unschedulable
	}
	if !apiequality.Semantic.DeepEqual(observed.Spec.Taints, desired.Spec.Taints) {
		spec["taints"] = desired.Spec.Taints
	}
	if len(spec) > 0 {
		patch["spec"] = spec
	}
	return json.Marshal(patch)
}

// values returns the values of some keys; nil for a key that is missing.
func values(of map[string]string, keys []string) map[string]any {
	found := map[string]any{}
	for _, key := range keys {
		if found[key] = nil; of[key] != "" {
			found[key] = of[key]
		}
	}
	return found
}

// writeMachines writes machines, each in one write, and updates machines. A machine that has
// changed since it was observed is read again, and the next decision is about what was read.
func (c *Controller) writeMachines(ctx context.Context, machines map[types.UID][]*v1alpha1.Machine, desired []*v1alpha1.Machine) error {
	for _, m := range desired {
		observed := remove(machines, m.UID)
		if observed == nil {
			continue
		}
		if f, undecodable := c.cfg.View.Machines.Undecodable.Get(objectcache.Key(m)); undecodable {
			put(machines, observed)
			return fmt.Errorf("move an updated machine to its new MachineSet: %w", f)
		}
		written, err := c.machines.Commit(ctx, observed, m)
		if apierrors.IsConflict(err) {
			written, err = c.cfg.Machines.Machines(m.Namespace).Get(ctx, m.Name, metav1.GetOptions{})
		}
		if apierrors.IsNotFound(err) || err == nil && written.UID != m.UID {
			continue
		}
		if err != nil {
			put(machines, observed)
			return fmt.Errorf("write machine %s/%s: %w", m.Namespace, m.Name, err)
		}
		c.machines.Wrote(written)
		put(machines, written)
	}
	return nil
}

// put adds a machine to those of its set.
func put(machines map[types.UID][]*v1alpha1.Machine, m *v1alpha1.Machine) {
	if set := metav1.GetControllerOfNoCopy(m); set != nil {
		machines[set.UID] = append(machines[set.UID], m)
	}
}

// remove removes a machine from those of its set and returns it; nil if it is not there.
func remove(machines map[types.UID][]*v1alpha1.Machine, uid types.UID) *v1alpha1.Machine {
	for set, all := range machines {
		if i := slices.IndexFunc(all, func(m *v1alpha1.Machine) bool { return m.UID == uid }); i >= 0 {
			m := all[i]
			machines[set] = slices.Delete(slices.Clone(all), i, i+1)
			return m
		}
	}
	return nil
}
