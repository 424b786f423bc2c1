//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinefacts"
)

// preservation is its representation on machine and Node.
func preservation(m v1alpha1.Machine, n *corev1.Node) string {
	words := []string{string(m.Status.CurrentStatus.Phase)}
	add := func(is bool, word string) {
		if is {
			words = append(words, word)
		}
	}
	add(m.Status.CurrentStatus.PreserveExpiryTime != nil, "preserved")
	add(n.Annotations[v1alpha1.AnnotationScaleDownDisabled] == "true" && n.Annotations[v1alpha1.AnnotationScaleDownDisabledByUs] == "true", "annotated")
	add(hasTaint(n, v1alpha1.TaintPreserved, ""), "tainted")
	for _, c := range n.Status.Conditions {
		if c.Type == v1alpha1.NodePreserved {
			words = append(words, string(c.Status))
		}
	}
	return strings.Join(words, " ")
}

// preserved waits until the only machine of a pool and its Node are as expected, and returns the machine.
func (s *space) preserved(pool, want string) (m v1alpha1.Machine) {
	s.Helper()
	s.eventually("the machine is "+want, func(ctx context.Context) error {
		machines, err := s.machines(ctx, pool)
		if err != nil || len(machines) != 1 {
			return fmt.Errorf("there are %d machines, %w", len(machines), err)
		}
		m = machines[0]
		node, err := s.lab.Target.CoreV1().Nodes().Get(ctx, m.Labels[v1alpha1.LabelNode], metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := preservation(m, node); got != want {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})
	return m
}

// preserve writes the annotation on a Node; "null" removes it.
func (s *space) preserve(node, value string) {
	s.Helper()
	if value != "null" {
		value = fmt.Sprintf("%q", value)
	}
	s.patchNode(node, fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, v1alpha1.AnnotationPreserve, value))
}

// setReports waits until the status of the only MachineSet is as expected.
func (s *space) setReports(right func(v1alpha1.MachineSetStatus) bool) {
	s.Helper()
	s.eventually("the MachineSet reports it", func(ctx context.Context) error {
		list, err := s.api().MachineSets(s.name).List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 || !right(list.Items[0].Status) {
			return fmt.Errorf("%+v, %w", list.Items, err)
		}
		return nil
	})
}

// sick is a condition that must not be on the Nodes of these machines.
const sick = "Sick"

func (s *space) sick(node string, status corev1.ConditionStatus) {
	s.Helper()
	s.patchNode(node, fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":%q}]}}`, sick, status), "status")
}

// TestPreserve: a failed machine is preserved by the annotation of its Node, until it recovers; and a running one, until its time
// is over.
func TestPreserve(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "preserve", "")
	s.workload()
	s.deploy("pool", 1, func(d *v1alpha1.MachineDeployment) {
		conditions := sick
		d.Spec.Template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
			MachineCreationTimeout: &metav1.Duration{Duration: 20 * time.Second}, NodeConditions: &conditions,
		}
		// Without this it would run before its Node is reported as unhealthy.
		d.Spec.Template.Spec.NodeTemplateSpec.Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintCriticalComponentsNotReady, Effect: corev1.TaintEffectNoSchedule}}
	})
	first := s.preserved("pool", "Pending")
	node := first.Labels[v1alpha1.LabelNode]
	s.preserve(node, v1alpha1.PreserveWhenFailed) // before its time to become a healthy Node is over
	s.sick(node, corev1.ConditionTrue)
	s.podOn(node, "web", pause(), nil)
	if m := s.preserved("pool", "Failed preserved annotated tainted True"); m.UID != first.UID {
		t.Fatalf("machine %s has replaced %s", m.Name, first.Name)
	}
	// True under the taint means that it was drained.
	if _, err := s.lab.Target.CoreV1().Pods(s.name).Get(t.Context(), "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the pod on the Node of a machine that has failed: want none, got %v", err)
	}
	s.setReports(func(status v1alpha1.MachineSetStatus) bool {
		return status.PreservedFailedReplicas == 1 && status.Replicas == 1
	})

	s.sick(node, corev1.ConditionFalse)
	s.preserved("pool", "Running False")
	s.preserve(node, v1alpha1.PreserveNow)
	m := s.preserved("pool", "Running preserved annotated True")
	if remaining := time.Until(m.Status.CurrentStatus.PreserveExpiryTime.Time); remaining < 95*time.Hour || remaining > 97*time.Hour {
		t.Errorf("it is preserved for %s", remaining)
	}
	past := metav1.NewTime(time.Now().Add(-time.Minute)).UTC().Format(time.RFC3339)
	_, err := s.api().Machines(s.name).Patch(t.Context(), m.Name, types.MergePatchType,
		fmt.Appendf(nil, `{"status":{"currentStatus":{"preserveExpiryTime":%q}}}`, past), metav1.PatchOptions{}, "status")
	s.must(err)
	if m := s.preserved("pool", "Running False"); m.UID != first.UID {
		t.Errorf("machine %s has replaced %s", m.Name, first.Name)
	}
	after, err := s.lab.Target.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	s.must(err)
	if value, requested := after.Annotations[v1alpha1.AnnotationPreserve]; requested {
		t.Errorf("its time was over, and the Node has the annotation %q", value)
	}
	s.emitsTimes(first.UID, v1alpha1.EventPreserved, 2) // when it failed, and when it was to be preserved at once
	s.remove("machinedeployments", "pool")
	s.gone()
}

// TestAutoPreserve: as many failed machines are preserved as the MachineDeployment sets, and the others are replaced.
func TestAutoPreserve(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "auto-preserve", "")
	s.deploy("pool", 0, func(d *v1alpha1.MachineDeployment) {
		d.Spec.AutoPreserveFailedMachineMax = 1
		d.Spec.Template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachineCreationTimeout: &metav1.Duration{Duration: 15 * time.Second}}
	})
	var unlucky []string
	s.eventually("the names of the first machines are known", func(ctx context.Context) error {
		list, err := s.api().MachineSets(s.name).List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) == 0 {
			return fmt.Errorf("there are %d MachineSets, %w", len(list.Items), err)
		}
		set := list.Items[0]
		unlucky = []string{machinefacts.Name(set.Name, set.UID, 0), machinefacts.Name(set.Name, set.UID, 1)}
		return nil
	})
	for _, name := range unlucky {
		s.foreignNode(name)
	}
	s.scale("pool", 2)
	var kept string
	s.eventually("one of the failed machines is preserved, and the other replaced", func(ctx context.Context) error {
		machines, err := s.machines(ctx, "pool")
		if err != nil {
			return err
		}
		var wrong complaints
		wrong.unless(len(machines) == 2, "there are %d machines", len(machines))
		kept = ""
		for _, m := range machines {
			if slices.Contains(unlucky, m.Name) {
				kept += m.Name
				wrong.unless(m.Annotations[v1alpha1.AnnotationPreserve] == v1alpha1.PreserveAuto && m.Status.CurrentStatus.PreserveExpiryTime != nil,
					"%s: annotations %v, %+v", m.Name, m.Annotations, m.Status.CurrentStatus)
				continue
			}
			wrong.unless(m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning, "%s is %s", m.Name, m.Status.CurrentStatus.Phase)
		}
		wrong.unless(slices.Contains(unlucky, kept), "kept is %q", kept)
		return wrong.err()
	})
	s.setReports(func(status v1alpha1.MachineSetStatus) bool {
		return status.AutoPreserveFailedMachineCount == 1 && status.PreservedFailedReplicas == 1
	})
	s.patch("machinedeployments", "pool", `{"spec":{"autoPreserveFailedMachineMax":0}}`)
	s.running("pool", 2)
	machines, err := s.machines(t.Context(), "pool")
	s.must(err)
	if slices.ContainsFunc(machines, func(m v1alpha1.Machine) bool { return m.Name == kept }) {
		t.Errorf("%s is there still", kept)
	}
	s.remove("machinedeployments", "pool")
}
