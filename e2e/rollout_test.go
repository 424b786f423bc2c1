//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// TestChangedTemplate touches no machine, says so, and goes on to scale the machines that there are.
func TestChangedTemplate(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "template", "")
	s.deploy("pool", 2)
	s.running("pool", 2)
	s.reports("pool", 2)
	old, before := s.set("pool").Name, s.joined()

	s.patch("machinedeployments", "pool", `{"spec":{"template":{"metadata":{"annotations":{"changed":"yes"}}}}}`)
	s.progressing(corev1.ConditionFalse, v1alpha1.ReasonRolloutNotSupported)
	if diff := cmp.Diff(map[string]int32{old: 2, s.other(old): 0}, s.sizes()); diff != "" {
		t.Errorf("sizes of the MachineSets (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, s.joined()); diff != "" {
		t.Errorf("machines and their VMs before and after (-want +got):\n%s", diff)
	}

	s.scale("pool", 3)
	s.running("pool", 3)
	after := s.joined()
	if diff := cmp.Diff(map[string]int32{old: 3, s.other(old): 0}, s.sizes()); diff != "" {
		t.Errorf("sizes of the MachineSets (-want +got):\n%s", diff)
	}
	maps.DeleteFunc(after, func(name, _ string) bool { _, was := before[name]; return !was })
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("machines and their VMs before and after (-want +got):\n%s", diff)
	}

	s.patch("machinedeployments", "pool", `{"spec":{"template":{"metadata":{"annotations":null}}}}`)
	s.progressing(corev1.ConditionTrue, v1alpha1.ReasonNewMachineSetAvailable)
	s.remove("machinedeployments", "pool")
	s.gone()
}

// progressing waits until the MachineDeployment pool says so.
func (s *space) progressing(status corev1.ConditionStatus, reason string) {
	s.Helper()
	s.eventually(fmt.Sprintf("Progressing is %s because of %s", status, reason), func(ctx context.Context) error {
		d, err := s.api().MachineDeployments(s.name).Get(ctx, "pool", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range d.Status.Conditions {
			if c.Type == v1alpha1.MachineDeploymentProgressing && c.Status == status && c.Reason == reason && c.Message != "" &&
				d.Status.ObservedGeneration == d.Generation {
				return nil
			}
		}
		return fmt.Errorf("conditions are %v", d.Status.Conditions)
	})
}

// sizes are the replicas that the MachineSets of the namespace shall have.
func (s *space) sizes() map[string]int32 {
	s.Helper()
	sets, err := s.api().MachineSets(s.name).List(s.Context(), metav1.ListOptions{})
	s.must(err)
	sizes := map[string]int32{}
	for _, set := range sets.Items {
		sizes[set.Name] = set.Spec.Replicas
	}
	return sizes
}

// other returns the name of a MachineSet of the namespace that is not the given one; "" when there is none.
func (s *space) other(than string) string {
	s.Helper()
	for name := range s.sizes() {
		if name != than {
			return name
		}
	}
	return ""
}
