package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// namespace is where the demo's objects are.
const namespace = metav1.NamespaceDefault

// simulatedRuntime is the prefix of the container runtime that a simulated Node reports.
const simulatedRuntime = "simulated:"

// observe takes a picture of a lab. It reads live and not from a cache, so that a goal does not
// count as reached before the last change of the spec is visible. Only holders of slots are read
// from a watch, which may be late: no goal about them is reached too early by that.
func observe(ctx context.Context, lab *harness.Lab, leases *follower) (picture, error) {
	var p picture
	vms, err := lab.Cloud.AllVMs(ctx) // first: a machine that is read as Running had its VM before
	if err != nil {
		return picture{}, err
	}
	for _, v := range vms {
		if v.State != cloudapi.StateTerminated {
			p.VMs = append(p.VMs, vm{Zone: v.Zone, State: v.State})
		}
	}
	if p.Deployments, p.Machines, err = observeMachines(ctx, lab); err != nil {
		return picture{}, err
	}
	p.Fleet = leases.fleet(p.Machines)
	if p.Nodes, err = observeNodes(ctx, lab); err != nil {
		return picture{}, err
	}
	p.Pods, err = observePods(ctx, lab)
	return p, err
}

func observeMachines(ctx context.Context, lab *harness.Lab) ([]deployment, []machine, error) {
	api := lab.Machines.MachineV1alpha1()
	wishes, err := api.MachineDeployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("list MachineDeployments: %w", err)
	}
	list, err := api.Machines(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("list Machines: %w", err)
	}
	found := map[string]deployment{}
	for _, w := range wishes.Items {
		d := deployment{Name: w.Name, Desired: int(w.Spec.Replicas), Ending: w.DeletionTimestamp != nil, Phases: map[v1alpha1.MachinePhase]int{}}
		if d.Ending {
			d.Desired = 0
		}
		found[w.Name] = d
	}
	var machines []machine
	for _, m := range list.Items {
		machines = append(machines, machine{Name: m.Name, Phase: m.Status.CurrentStatus.Phase, Slot: m.Labels[v1alpha1.LabelSlot]})
		name := m.Labels[v1alpha1.LabelName]
		if _, ok := found[name]; !ok {
			found[name] = deployment{Name: name, Phases: map[v1alpha1.MachinePhase]int{}}
		}
		found[name].Phases[m.Status.CurrentStatus.Phase]++
	}
	byName := func(a, b deployment) int { return cmp.Compare(a.Name, b.Name) }
	return slices.SortedFunc(maps.Values(found), byName), machines, nil
}

func observeNodes(ctx context.Context, lab *harness.Lab) ([]node, error) {
	list, err := lab.Target.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	var nodes []node
	for _, n := range list.Items {
		kind := kubeletNode
		if strings.HasPrefix(n.Status.NodeInfo.ContainerRuntimeVersion, simulatedRuntime) {
			kind = simulatedNode
		}
		nodes = append(nodes, node{
			Name: n.Name, Zone: n.Labels[corev1.LabelTopologyZone], Kind: kind, Ready: isReady(&n), Configured: isConfigured(&n),
		})
	}
	return nodes, nil
}

func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func isConfigured(n *corev1.Node) bool {
	prefix := configv1alpha1.DaemonPrefix
	desired := n.Annotations[prefix.DesiredConfig()]
	return desired != "" && n.Annotations[prefix.CurrentConfig()] == desired &&
		configv1alpha1.ParseNodeState(n.Annotations[prefix.State()]) == configv1alpha1.StateDone
}

func observePods(ctx context.Context, lab *harness.Lab) (pods, error) {
	wishes, err := lab.Target.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return pods{}, fmt.Errorf("list Deployments: %w", err)
	}
	var p pods
	for _, w := range wishes.Items {
		if w.DeletionTimestamp == nil && w.Spec.Replicas != nil {
			p.Desired += int(*w.Spec.Replicas)
		}
	}
	list, err := lab.Target.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return pods{}, fmt.Errorf("list pods: %w", err)
	}
	for _, pod := range list.Items {
		if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			p.Running++
		} else {
			p.Others++
		}
	}
	return p, nil
}
