//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
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

// TestUpdateInPlace: one machine after the other is transferred from the old MachineSet to the new
// one, and stays the same machine, on the same VM and Node.
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
			return t.Key == v1alpha1.TaintPreferNoSchedule || t.Key == v1alpha1.TaintCriticalComponentsNotReady ||
				t.Key == corev1.TaintNodeUnschedulable
		})
		if annotated || node.Spec.Unschedulable || node.Annotations[v1alpha1.AnnotationUpdateTo] != "" {
			s.Errorf("Node %s is still marked: %v, taints %v", name, node.Annotations, node.Spec.Taints)
		}
	}
}
