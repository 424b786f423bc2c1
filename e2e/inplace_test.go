//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated/cloudapi"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// inPlace creates a MachineDeployment of template "first" that updates its machines in place.
func inPlace(surge, unavailable int32, orchestration v1alpha1.OrchestrationType) func(*v1alpha1.MachineDeployment) {
	return func(d *v1alpha1.MachineDeployment) {
		s, u := intstr.FromInt32(surge), intstr.FromInt32(unavailable)
		d.Spec.Template.Annotations = map[string]string{"template": "first"}
		d.Spec.Strategy = v1alpha1.MachineDeploymentStrategy{
			Type: v1alpha1.InPlaceUpdateMachineDeploymentStrategyType,
			InPlaceUpdate: &v1alpha1.InPlaceUpdateMachineDeployment{
				UpdateConfiguration: v1alpha1.UpdateConfiguration{MaxSurge: &s, MaxUnavailable: &u}, OrchestrationType: orchestration,
			},
		}
	}
}

// TestUpdateInPlace: one machine after the other is transferred from the old MachineSet to the new one, and stays the same
// machine, on the same VM and Node.
func TestUpdateInPlace(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "in-place", "")
	s.deploy("pool", 3, inPlace(0, 1, v1alpha1.OrchestrationTypeAuto))
	s.running("pool", 3)
	s.progressing(corev1.ConditionTrue, v1alpha1.ReasonNewMachineSetAvailable)
	before, nodes := s.identities(), s.poolNodes()
	within := s.watchLimits(2, 3)

	s.rollIt("second")
	s.rolled("second", 3)
	within()
	s.withoutRolloutNodes()
	s.same(before, nodes)

	s.patch("machinedeployments", "pool", `{"spec":{"replicas":4}}`) // the new set creates machines, and the old one stays closed
	s.rolled("second", 4)
	s.remove("machinedeployments", "pool")
	s.gone()
}

// TestUpdateInPlaceContinuesAtTheNextOwner: the next owner continues, when the owner is killed, and when the slot is handed over,
// in each stage of a Node.
func TestUpdateInPlaceContinuesAtTheNextOwner(t *testing.T) {
	t.Parallel()
	s := newSpace(t, fleetWithoutProxies(t), "in-place-moved", "")
	s.workload()
	s.deploy("pool", 3, inPlace(0, 1, v1alpha1.OrchestrationTypeAuto))
	s.running("pool", 3)
	s.progressing(corev1.ConditionTrue, v1alpha1.ReasonNewMachineSetAvailable)
	before, nodes := s.identities(), s.poolNodes()
	within := s.watchLimits(2, 3)

	s.agents(cloudapi.UpdateNever)
	s.rollIt("second")
	s.reaches(v1alpha1.NodeReasonReadyForUpdate)
	comesBack := s.losesOwner()
	s.agents("") // it ends while the slot has no owner
	s.reaches(v1alpha1.NodeReasonReadyForUpdate, v1alpha1.UpdateResultSuccessful)
	s.rolled("second", 3)
	comesBack()

	s.agents(cloudapi.UpdateNever)
	for node := range nodes {
		s.podOn(node, "on-"+node, pause(), neverEnds)
		s.ready("on-"+node, 1)
	}
	s.rollIt("third")
	s.movesAt(v1alpha1.NodeReasonSelectedForUpdate)
	for node := range nodes {
		s.ends("on-" + node)
	}
	s.movesAt(v1alpha1.NodeReasonReadyForUpdate)
	s.agents(cloudapi.UpdateFailed)
	failed := s.movesAt(v1alpha1.NodeReasonUpdateFailed, v1alpha1.UpdateResultFailed)
	s.agents("")
	s.patchNode(failed, fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, v1alpha1.LabelUpdateResult))
	s.wanders(2)
	s.rolled("third", 3)
	within()
	s.withoutRolloutNodes()
	s.same(before, nodes)
	s.remove("machinedeployments", "pool")
	s.gone()
}

// agents sets what the agents on the machines of pool do from now on; "" is the default.
func (s *space) agents(result cloudapi.UpdateResult) {
	s.Helper()
	value := any(result)
	if result == "" {
		value = nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{cloudapi.AnnotationUpdateResult: value}}})
	s.must(err)
	for node := range s.poolNodes() {
		s.patchNode(node, string(patch))
	}
}

// reaches waits until a Node of pool is in a stage of its update, with a result if one is named, and returns its name. It watches, because a
// replica that serves the slot ends the stage at once.
func (s *space) reaches(stage string, result ...string) string {
	s.Helper()
	pool := s.poolNodes()
	reached := func(n *corev1.Node) bool { return pool[n.Name] != nil && isAt(n, stage, result...) }
	api := s.lab.Target.CoreV1().Nodes()
	now, err := api.List(s.Context(), metav1.ListOptions{})
	s.must(err)
	for i := range now.Items {
		if reached(&now.Items[i]) {
			return now.Items[i].Name
		}
	}
	changes, err := harness.Watch(s.Context(), now.ResourceVersion, api.Watch)
	s.must(err)
	defer changes.Stop()
	for e := range changes.ResultChan() {
		if n, ok := e.Object.(*corev1.Node); ok && reached(n) {
			return n.Name
		}
	}
	for name, n := range s.poolNodes() {
		s.Logf("%s is %s, labels %v", name, machinefacts.InPlaceStage(n), n.Labels)
	}
	s.Fatalf("wait until a Node is %s %v: %v", stage, result, s.Context().Err())
	return ""
}

// isAt reports whether a Node is selected and in a stage of its update, with a result if one is named, and with none if not.
func isAt(n *corev1.Node, stage string, result ...string) bool {
	return n.Labels[v1alpha1.LabelSelectedForUpdate] == "true" && machinefacts.InPlaceStage(n) == stage && n.Labels[v1alpha1.LabelUpdateResult] == strings.Join(result, "")
}

// movesAt hands the slot of pool over while a Node is in a stage of its update, and checks that the stage is the same when the new
// owner serves the slot. It returns the Node's name.
func (s *space) movesAt(stage string, result ...string) string {
	s.Helper()
	name := s.reaches(stage, result...)
	s.wanders(1)
	if n := s.poolNodes()[name]; n == nil || !isAt(n, stage, result...) {
		s.Errorf("Node %s was %s %v before its slot was handed over; after that it is %v", name, stage, result, n)
	}
	return name
}

// TestUpdateInPlaceDeletedMeanwhile: a deletion leaves nothing behind, in each stage of a Node.
func TestUpdateInPlaceDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "in-place-deleted", "")
	s.deploy("pool", 2, inPlace(0, 1, v1alpha1.OrchestrationTypeAuto))
	s.running("pool", 2)
	s.progressing(corev1.ConditionTrue, v1alpha1.ReasonNewMachineSetAvailable)
	s.agents(cloudapi.UpdateNever)
	s.rollIt("second")
	s.reaches(v1alpha1.NodeReasonReadyForUpdate)
	film := s.film()
	s.remove("machinedeployments", "pool")
	s.gone()
	selected := map[string]bool{}
	nodes, _ := shown[*corev1.Node](s, film)
	for _, n := range nodes {
		if n.Labels[v1alpha1.LabelSelectedForUpdate] == "true" && s.isMine(n) {
			selected[n.Name] = true
		}
	}
	if len(selected) > 1 {
		t.Errorf("one Node was selected when the MachineDeployment was deleted; selected were %v", selected)
	}
}

// isMine reports whether a Node is that of a machine of the namespace.
func (s *space) isMine(n *corev1.Node) bool {
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	return slices.Contains(slices.Collect(maps.Values(s.seen.machines)), n.Labels[v1alpha1.LabelMachineName])
}

// TestUpdateInPlaceThatFails: of two machines the agent of one fails, and that of the other does nothing. Machines of the new
// template replace them, one after the other, and meanwhile the MachineDeployment reports why it makes no progress.
func TestUpdateInPlaceThatFails(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "in-place-fails", "")
	s.deploy("pool", 2, inPlace(0, 1, v1alpha1.OrchestrationTypeAuto), func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
			MachineInPlaceUpdateTimeout: &metav1.Duration{Duration: 5 * time.Second}, MachineHealthTimeout: &metav1.Duration{Duration: 5 * time.Second},
		}
	})
	s.running("pool", 2)
	s.progressing(corev1.ConditionTrue, v1alpha1.ReasonNewMachineSetAvailable)
	before := slices.Collect(maps.Keys(s.identities()))
	for i, node := range slices.Sorted(maps.Keys(s.poolNodes())) {
		result := []cloudapi.UpdateResult{cloudapi.UpdateFailed, cloudapi.UpdateNever}[i]
		s.patchNode(node, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, cloudapi.AnnotationUpdateResult, result))
	}
	within, film := s.watchLimits(1, 2), s.film()

	s.rollIt("second")
	s.concludes(v1alpha1.MachineDeploymentRolloutStalled, corev1.ConditionTrue, v1alpha1.ReasonInPlaceUpdateFailed)
	s.rolled("second", 2)
	within()
	s.withoutRolloutNodes()
	s.oneByOne(film, before)
	s.remove("machinedeployments", "pool")
	s.gone()
}

// TestUpdateInPlaceWithSurge: a new machine is created first, so that none is missing, and an old one is deleted in the end.
func TestUpdateInPlaceWithSurge(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "in-place-surge", "")
	s.deploy("pool", 2, inPlace(1, 0, v1alpha1.OrchestrationTypeAuto))
	s.running("pool", 2)
	s.progressing(corev1.ConditionTrue, v1alpha1.ReasonNewMachineSetAvailable)
	before := s.identities()
	within := s.watchLimits(2, 3)

	s.rollIt("second")
	s.rolled("second", 2)
	within()
	s.withoutRolloutNodes()
	stayed := s.identities()
	maps.DeleteFunc(stayed, func(name string, uid types.UID) bool { return before[name] != uid })
	if len(stayed) != 1 {
		t.Errorf("of %v %v are left, want one", before, stayed)
	}
	s.remove("machinedeployments", "pool")
	s.gone()
}

// TestUpdateInPlaceByTheUser: a machine is updated when a user selects its Node, and not before.
func TestUpdateInPlaceByTheUser(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "in-place-manual", "")
	s.deploy("pool", 2, inPlace(1, 1, v1alpha1.OrchestrationTypeManual))
	s.running("pool", 2)
	s.progressing(corev1.ConditionTrue, v1alpha1.ReasonNewMachineSetAvailable)
	before, nodes := s.identities(), s.poolNodes()

	s.rollIt("second")
	first := slices.Min(slices.Collect(maps.Keys(nodes)))
	s.selects(first)
	s.has("second", 1)
	if found, err := s.templates(t.Context()); err != nil || found["first"] != 1 {
		t.Errorf("one Node was selected; machines by template: %v, %v", found, err)
	}
	for node := range nodes {
		if node != first {
			s.selects(node)
		}
	}
	s.rolled("second", 2)
	s.withoutRolloutNodes()
	s.same(before, nodes)
	s.remove("machinedeployments", "pool")
	s.gone()
}

// selects labels a Node, once it is a candidate, as a user does.
func (s *space) selects(node string) {
	s.Helper()
	s.eventually("Node "+node+" is a candidate", func(ctx context.Context) error {
		n, err := s.lab.Target.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err == nil && n.Labels[v1alpha1.LabelCandidateForUpdate] != "true" {
			err = fmt.Errorf("its labels are %v", n.Labels)
		}
		return err
	})
	s.patchNode(node, fmt.Sprintf(`{"metadata":{"labels":{%q:"true"}}}`, v1alpha1.LabelSelectedForUpdate))
}

// identities are the UIDs of the machines of pool, by name.
func (s *space) identities() map[string]types.UID {
	s.Helper()
	machines, err := s.machines(s.Context(), "pool")
	s.must(err)
	found := map[string]types.UID{}
	for _, m := range machines {
		found[m.Name] = m.UID
	}
	return found
}

// poolNodes are the Nodes of the machines of pool, by name.
func (s *space) poolNodes() map[string]*corev1.Node {
	s.Helper()
	found, err := s.nodesOf(s.Context(), "pool")
	s.must(err)
	return found
}

// same checks that machines and Nodes are the same, and that nothing of an update is left on them.
func (s *space) same(machines map[string]types.UID, nodes map[string]*corev1.Node) {
	s.Helper()
	if now := s.identities(); !maps.Equal(now, machines) {
		s.Errorf("machines are %v, and were %v", now, machines)
	}
	for name, node := range s.poolNodes() {
		was := nodes[name]
		if was == nil || was.UID != node.UID {
			s.Errorf("Node %s was not there before", name)
			continue
		}
		for _, key := range []string{v1alpha1.LabelCandidateForUpdate, v1alpha1.LabelSelectedForUpdate, v1alpha1.LabelUpdateResult} {
			if node.Labels[key] != "" {
				s.Errorf("Node %s has still the label %s", name, key)
			}
		}
		annotated := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == v1alpha1.TaintPreferNoSchedule || t.Key == v1alpha1.TaintCriticalComponentsNotReady || t.Key == corev1.TaintNodeUnschedulable
		})
		if annotated || node.Spec.Unschedulable || node.Annotations[v1alpha1.AnnotationUpdateTo] != "" {
			s.Errorf("Node %s is still marked: %v, taints %v", name, node.Annotations, node.Spec.Taints)
		}
	}
}
