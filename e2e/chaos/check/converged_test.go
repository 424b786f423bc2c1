package check

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// TestConverged: each single deviation from the desired state is found.
func TestConverged(t *testing.T) {
	const desired = 3
	for name, test := range map[string]struct {
		change func(d *v1alpha1.MachineDeployment, m *v1alpha1.Machine)
		fewer  int // machines
		want   string
	}{
		"as desired":  {change: func(*v1alpha1.MachineDeployment, *v1alpha1.Machine) {}},
		"one too few": {fewer: 1, want: "should have 3 machines and has 2, of which 2 run"},
		"none":        {fewer: desired, want: "should have 3 machines and has 0"},
		"one too many": {
			change: func(d *v1alpha1.MachineDeployment, _ *v1alpha1.Machine) { d.Spec.Replicas-- }, want: "should have 2 machines and has 3",
		},
		"one that does not run": {change: func(_ *v1alpha1.MachineDeployment, m *v1alpha1.Machine) {
			m.Status.CurrentStatus.Phase = v1alpha1.MachinePending
		}, want: "of which 2 run"},
		"one that is deleted": {
			change: func(_ *v1alpha1.MachineDeployment, m *v1alpha1.Machine) { m.DeletionTimestamp = &metav1.Time{} }, want: "of which 2 run",
		},
		"a deployment that goes": {
			change: func(d *v1alpha1.MachineDeployment, _ *v1alpha1.Machine) { d.DeletionTimestamp = &metav1.Time{} }, want: "deleted: true",
		},
		"an old generation": {change: func(d *v1alpha1.MachineDeployment, _ *v1alpha1.Machine) { d.Generation++ }, want: "in generation 7"},
		"a status that is late": {
			change: func(d *v1alpha1.MachineDeployment, _ *v1alpha1.Machine) { d.Status.ReadyReplicas-- }, want: "2 of them ready",
		},
		"one without a label": {
			change: func(_ *v1alpha1.MachineDeployment, m *v1alpha1.Machine) { m.Labels = nil },
			want:   `of MachineDeployment "", which does not exist`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "d", Generation: 7}}
			d.Spec.Replicas = desired
			d.Status = v1alpha1.MachineDeploymentStatus{ObservedGeneration: 7, Replicas: desired, ReadyReplicas: desired}
			machines := make([]v1alpha1.Machine, desired-test.fewer)
			for i := range machines {
				machines[i].Labels = map[string]string{v1alpha1.LabelName: "d"}
				machines[i].Status.CurrentStatus.Phase = v1alpha1.MachineRunning
			}
			if test.change != nil {
				test.change(&d, &machines[0])
			}
			err := Converged([]v1alpha1.MachineDeployment{d}, machines)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
