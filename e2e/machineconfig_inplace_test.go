//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"

	configv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/join/stamp"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// The configurations have this file and this unit.
const inPlaceFile, inPlaceUnit = "/etc/demo", "demo.service"

// joinedInPlace is a MachineDeployment "pool" of VMs with real kubelets and daemons that is updated
// in place, and the MachineConfigPool that refers to it.
type joinedInPlace struct {
	*space

	size int
	vms  map[string]string // by Node
	// target is the configuration of the pool.
	target string
}

// updatesInPlace: configurations go through the updates in place of a MachineDeployment, with the
// daemons as agents. Nodes are updated one at a time, the last ones when a user selects them, and a
// daemon is killed meanwhile. Machines, VMs and Nodes stay the same.
func updatesInPlace(s *space) {
	const size = 3
	s.deploy("pool", size, inPool(s.name), inPlace(0, 1, v1alpha1.OrchestrationTypeAuto))
	s.running("pool", size)
	s.progressing(corev1.ConditionTrue, v1alpha1.ReasonNewMachineSetAvailable)
	before, nodes := s.identities(), s.poolNodes()
	budget, err := s.lab.WatchBudget(s.Context(), s.name, 1)
	s.must(err)
	j := &joinedInPlace{space: s, size: size, vms: s.joined()}
	j.takesTheFirst()
	s.same(before, nodes)
	j.isSelectedByTheUser()
	s.same(before, nodes)
	if most := budget.Most(); most != 1 {
		s.Errorf("at most %d Nodes were updated at a time, want 1", most)
	}
	s.must(budget.Stop())
	if created, err := s.lab.Cloud.History(s.Context(), s.name); err != nil || len(created) != size {
		s.Errorf("the cloud has created %d VMs for %d machines (%v): an update in place keeps them", len(created), size, err)
	}
}

// takesTheFirst: all Nodes get the first configuration, which needs a reboot. The first Node waits
// for its critical components, and no other is updated before; then the taint is switched off.
// While the second one is updated, its daemon is killed.
func (j *joinedInPlace) takesTheFirst() {
	j.createPool()
	j.stalls(v1alpha1.ReasonMachinesUpdating, v1alpha1.TaintCriticalComponentsNotReady)
	var first string
	for name, n := range j.poolNodes() {
		switch current := j.currentOf(n); {
		case machinefacts.AwaitsComponents(n) && current == j.target && first == "":
			first = name
		case current == j.target || machinefacts.IsInPlaceSelected(n):
			j.Errorf("Node %s is updated before %s has its critical components", name, first)
		}
	}
	j.withoutComponentsTaint()
	j.hasComponents(first)

	var second string
	j.eventually("the next Node is assigned the configuration", func(ctx context.Context) (err error) {
		second, err = j.nodeWhere(ctx, func(n *corev1.Node) bool {
			return n.Name != first && n.Annotations[configv1alpha1.DaemonPrefix.DesiredConfig()] == j.target
		})
		return err
	})
	pid, err := j.lab.Daemon(j.vms[second])
	j.must(err)
	if pid != 0 { // else its VM reboots
		j.Logf("kill the daemon of Node %s, process %d: %v", second, pid, syscall.Kill(pid, syscall.SIGKILL))
	}
	j.isComplete("one")
}

// createPool creates the pool, with a first configuration that needs a reboot.
func (j *joinedInPlace) createPool() {
	j.set("50-"+j.name, harness.Ignition([]string{harness.File(inPlaceFile, "one")}, []string{harness.Unit(inPlaceUnit)}))
	pool := harness.NewPool(j.name, intstr.FromInt32(1))
	pool.Spec.NodeSelector = nil
	pool.Spec.MachineRef = &configv1alpha1.MachineReference{Kind: stamp.KindDeployment, Namespace: j.name, Name: "pool"}
	pool.Spec.Rollout = configv1alpha1.RolloutMachineDeployment
	_, err := j.lab.Configs.MachineConfigPools().Create(j.Context(), pool, metav1.CreateOptions{})
	j.must(err)
	j.hasNewTarget()
}

// withoutComponentsTaint makes updates not wait for critical components of a Node.
func (j *joinedInPlace) withoutComponentsTaint() {
	j.patch("machinedeployments", "pool", fmt.Sprintf(`{"metadata":{"annotations":{%q:"false"}}}`, v1alpha1.AnnotationComponentsTaint))
}

// isSelectedByTheUser: with the orchestration Manual the Node is updated that a user selects, and
// no other. With Auto the others follow.
func (j *joinedInPlace) isSelectedByTheUser() {
	orchestrate := func(by v1alpha1.OrchestrationType) {
		j.patch("machinedeployments", "pool", fmt.Sprintf(`{"spec":{"strategy":{"inPlaceUpdate":{"orchestrationType":%q}}}}`, by))
	}
	orchestrate(v1alpha1.OrchestrationTypeManual)
	j.set("50-"+j.name, harness.Ignition([]string{harness.File(inPlaceFile, "two")}, []string{harness.Unit(inPlaceUnit)}))
	j.hasNewTarget()
	j.eventually("all Nodes are candidates", func(ctx context.Context) error {
		nodes, err := j.nodesOf(ctx, "pool")
		var wrong deviations
		for name, n := range nodes {
			wrong.unless(machinefacts.InPlaceStage(n) == v1alpha1.NodeReasonCandidateForUpdate && !machinefacts.IsInPlaceSelected(n),
				"%s: %s, labels %v", name, machinefacts.InPlaceStage(n), n.Labels)
		}
		return errors.Join(err, wrong.err())
	})
	var names []string
	for name := range j.vms {
		names = append(names, name)
	}
	chosen := slices.Max(names) // the fleet would select the oldest one
	j.selects(chosen)
	j.eventually("the selected Node is updated", func(ctx context.Context) error {
		nodes, err := j.nodesOf(ctx, "pool")
		if err != nil {
			return err
		}
		n := nodes[chosen]
		if n == nil || j.currentOf(n) != j.target || n.Spec.Unschedulable || n.Labels[v1alpha1.LabelUpdateResult] != "" {
			return fmt.Errorf("it is %v", n)
		}
		return nil
	})
	for name, n := range j.poolNodes() {
		if name != chosen && (j.currentOf(n) == j.target || machinefacts.IsInPlaceSelected(n)) {
			j.Errorf("Node %s is updated without a selection", name)
		}
	}
	orchestrate(v1alpha1.OrchestrationTypeAuto)
	j.isComplete("two")
}

// set creates or changes a MachineConfig of the pool.
func (j *joinedInPlace) set(name string, config runtime.RawExtension) {
	j.Helper()
	j.must(j.lab.SetConfig(j.Context(), j.name, name, config))
}

// hasNewTarget waits until the pool has another target, and the template of the MachineDeployment
// names it.
func (j *joinedInPlace) hasNewTarget() {
	j.Helper()
	j.eventually("the template names a new target", func(ctx context.Context) error {
		p, err1 := j.lab.Configs.MachineConfigPools().Get(ctx, j.name, metav1.GetOptions{})
		d, err2 := j.api().MachineDeployments(j.name).Get(ctx, "pool", metav1.GetOptions{})
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		target, named := p.Status.CurrentMachineConfig, d.Spec.Template.Annotations[configv1alpha1.AnnotationMachineConfig]
		if target == "" || target == j.target || named != target {
			return fmt.Errorf("the target is %q, was %q, and the template names %q; conditions %v", target, j.target, named, p.Status.Conditions)
		}
		j.target = target
		return nil
	})
}

// isComplete waits until MachineDeployment and pool report that all machines are updated, and
// checks the Nodes and the disks of their VMs.
func (j *joinedInPlace) isComplete(content string) {
	j.Helper()
	j.eventually("the MachineDeployment is complete", func(ctx context.Context) error {
		d, err := j.api().MachineDeployments(j.name).Get(ctx, "pool", metav1.GetOptions{})
		if err != nil {
			return err
		}
		var wrong deviations
		st := d.Status
		wrong.unless(st.ObservedGeneration == d.Generation && st.Replicas == int32(j.size) && st.UpdatedReplicas == st.Replicas &&
			st.AvailableReplicas == st.Replicas,
			"generation %d: %+v", d.Generation, st)
		progressing := machinefacts.MachineDeploymentCondition(&st, v1alpha1.MachineDeploymentProgressing)
		wrong.unless(progressing != nil && progressing.Reason == v1alpha1.ReasonNewMachineSetAvailable, "its conditions are %v", st.Conditions)
		stalled := machinefacts.MachineDeploymentCondition(&st, v1alpha1.MachineDeploymentRolloutStalled)
		wrong.unless(stalled == nil, "it has stalled: %v", stalled)
		nodes, err := j.nodesOf(ctx, "pool")
		for name, n := range nodes {
			wrong.unless(
				j.currentOf(n) == j.target && !n.Spec.Unschedulable && len(n.Spec.Taints) == 0 && n.Labels[v1alpha1.LabelUpdateResult] == "",
				"%s: current %s, taints %v, labels %v", name, j.currentOf(n), n.Spec.Taints, n.Labels,
			)
		}
		return errors.Join(err, wrong.err())
	})
	if got := j.isOnTarget(j.size); got != j.target {
		j.Errorf("the pool has the target %s, want %s", got, j.target)
	}
	j.running("pool", j.size)
	machines, err := j.machines(j.Context(), "pool")
	j.must(err)
	for _, m := range machines {
		if named := m.Annotations[configv1alpha1.AnnotationMachineConfig]; named != j.target {
			j.Errorf("machine %s names the configuration %q, want %q", m.Name, named, j.target)
		}
	}
	for node, vm := range j.joined() {
		if was := j.vms[node]; was != vm {
			j.Errorf("Node %s is VM %s, and was %s", node, vm, was)
		}
		(&configured{T: j.T, lab: j.lab, node: node, vm: vm}).has(inPlaceFile, content)
	}
}

// stalls waits until the rollout reports that it makes no progress, with a reason and a part of the
// message.
func (j *joinedInPlace) stalls(reason, part string) {
	j.Helper()
	j.eventually("the rollout reports "+reason, func(ctx context.Context) error {
		d, err := j.api().MachineDeployments(j.name).Get(ctx, "pool", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if c := machinefacts.MachineDeploymentCondition(&d.Status, v1alpha1.MachineDeploymentRolloutStalled); c == nil || c.Reason != reason ||
			!strings.Contains(c.Message, part) {
			nodes, err := j.nodesOf(ctx, "pool")
			for name, n := range nodes {
				err = errors.Join(err, fmt.Errorf("%s: %s, labels %v, annotations %v", name, machinefacts.InPlaceStage(n), n.Labels, n.Annotations))
			}
			return errors.Join(fmt.Errorf("its conditions are %v", d.Status.Conditions), err)
		}
		return nil
	})
}

// hasComponents removes the taint of a Node whose critical components are not ready, as Gardener's
// resource manager does.
func (j *joinedInPlace) hasComponents(node string) {
	j.Helper()
	api := j.lab.Target.CoreV1().Nodes()
	j.must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		n, err := api.Get(j.Context(), node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintCriticalComponentsNotReady })
		_, err = api.Update(j.Context(), n, metav1.UpdateOptions{})
		return err
	}))
}

// nodeWhere returns the name of a Node for which a condition holds.
func (j *joinedInPlace) nodeWhere(ctx context.Context, holds func(*corev1.Node) bool) (string, error) {
	nodes, err := j.nodesOf(ctx, "pool")
	for name, n := range nodes {
		if holds(n) {
			return name, nil
		}
		err = errors.Join(err, fmt.Errorf("%s: %s, labels %v, annotations %v", name, machinefacts.InPlaceStage(n), n.Labels, n.Annotations))
	}
	return "", err
}

func (j *joinedInPlace) currentOf(n *corev1.Node) string {
	return n.Annotations[configv1alpha1.DaemonPrefix.CurrentConfig()]
}
