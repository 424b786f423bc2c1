//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// TestMainJob tests the main purpose of the fleet.
func TestMainJob(t *testing.T) {
	t.Parallel()
	newSpace(t, shared(t), "main-job", "").mainJob()
}

// mainJob creates machines that become Nodes, scales them, replaces them by those of another
// template, and deletes them.
func (s *space) mainJob() {
	s.deploy("pool", 3, asGardenerDoes)
	s.running("pool", 3)
	three := s.joined()
	s.ownedAndFinalized()
	s.reports("pool", 3)
	s.noTokens()

	s.kubectl("scale", "mcd/pool", "--replicas=5")
	s.running("pool", 5)
	five := s.joined()
	for name, vm := range three {
		if five[name] != vm {
			s.Errorf("scaling up replaced machine %s: its VM was %s and is %q", name, vm, five[name])
		}
	}

	// Of equal machines the oldest is deleted first, but a lower priority precedes that.
	kept := slices.Min(slices.Collect(maps.Keys(three)))
	s.kubectl("annotate", "mc/"+kept, v1alpha1.AnnotationPriority+"=5", "--overwrite")
	s.kubectl("scale", "mcd/pool", "--replicas=1")
	s.running("pool", 1)
	if diff := cmp.Diff(map[string]string{kept: three[kept]}, s.joined()); diff != "" {
		s.Errorf("after scaling down, machines and their VMs (-want +got):\n%s", diff)
	}
	s.reports("pool", 1)

	s.rollIt("second")
	s.rolled("second", 1)
	if _, still := s.joined()[kept]; still {
		s.Errorf("machine %s was not replaced by one of the changed template", kept)
	}
	s.kubectl("delete", "mcd/pool")
	s.gone()
}

// asGardenerDoes sets the fields that Gardener sets and most tests do not.
func asGardenerDoes(d *v1alpha1.MachineDeployment) {
	d.Spec.MinReadySeconds = 500 // which delays nothing
	d.Spec.Strategy.Type = v1alpha1.RollingUpdateMachineDeploymentStrategyType
	d.Spec.Strategy.RollingUpdate = &v1alpha1.RollingUpdateMachineDeployment{
		UpdateConfiguration: v1alpha1.UpdateConfiguration{MaxSurge: new(intstr.FromInt32(1)), MaxUnavailable: new(intstr.FromInt32(0))},
	}
	d.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{"worker.example.com/pool": d.Name}
}

// ownedAndFinalized checks owners, finalizers and owner references. A program that reads owner
// references may read the first one only.
func (s *space) ownedAndFinalized() {
	s.Helper()
	d, err := s.api().MachineDeployments(s.name).Get(s.Context(), "pool", metav1.GetOptions{})
	s.must(err)
	set := s.set("pool")
	machines, err := s.machines(s.Context(), "pool")
	s.must(err)
	class, err := s.api().MachineClasses(s.name).Get(s.Context(), harness.ClassName, metav1.GetOptions{})
	s.must(err)
	secret, err := s.lab.Control.CoreV1().Secrets(s.name).Get(s.Context(), harness.ClassName, metav1.GetOptions{})
	s.must(err)
	var wrong deviations
	for _, held := range []metav1.Object{d, set, class} {
		wrong.unless(slices.Contains(held.GetFinalizers(), v1alpha1.FinalizerName), "%T has finalizers %v", held, held.GetFinalizers())
	}
	wrong.unless(slices.Contains(secret.Finalizers, v1alpha1.SecretFinalizerName), "the Secret has finalizers %v", secret.Finalizers)
	owned := func(by, child metav1.Object) {
		refs := child.GetOwnerReferences()
		wrong.unless(len(refs) > 0 && refs[0].UID == by.GetUID() && metav1.IsControlledBy(child, by),
			"%s is not controlled by %s: %v", child.GetName(), by.GetName(), refs)
	}
	owned(d, set)
	for _, m := range machines {
		owned(set, &m)
	}
	s.must(wrong.err())
}

// set returns the only MachineSet with machines of a MachineDeployment.
func (s *space) set(pool string) *v1alpha1.MachineSet {
	s.Helper()
	list, err := s.api().MachineSets(s.name).List(s.Context(), metav1.ListOptions{LabelSelector: v1alpha1.LabelName + "=" + pool})
	s.must(err)
	sets := slices.DeleteFunc(list.Items, func(set v1alpha1.MachineSet) bool { return set.Spec.Replicas == 0 })
	if len(sets) != 1 {
		s.Fatalf("%s has %d MachineSets with machines, want 1", pool, len(sets))
	}
	return &sets[0]
}

// noTokens waits until no bootstrap token is left: each machine has joined and does not need one
// any more.
func (s *space) noTokens() {
	s.Helper()
	s.eventually("the bootstrap tokens are gone", func(ctx context.Context) error {
		tokens, err := s.tokens(ctx)
		if err == nil && len(tokens) > 0 {
			err = fmt.Errorf("there are %v", tokens)
		}
		return err
	})
}

// reports waits until the status of a MachineDeployment and of its set report n running machines.
func (s *space) reports(pool string, n int32) {
	s.Helper()
	set := s.set(pool)
	selector := metav1.FormatLabelSelector(set.Spec.Selector)
	ours := v1alpha1.LabelName + "=" + pool
	if s.lenient { // their status has no such field
		selector, ours = "", ""
	}
	s.eventually(fmt.Sprintf("the status of %s reports %d machines", pool, n), func(ctx context.Context) error {
		set, err1 := s.api().MachineSets(s.name).Get(ctx, set.Name, metav1.GetOptions{})
		d, err2 := s.api().MachineDeployments(s.name).Get(ctx, pool, metav1.GetOptions{})
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		diff := cmp.Diff(v1alpha1.MachineSetStatus{
			Replicas: n, FullyLabeledReplicas: n, ReadyReplicas: n, AvailableReplicas: n,
			ObservedGeneration: set.Generation, Selector: selector,
		}, set.Status, cmpopts.EquateEmpty())
		diff += cmp.Diff(v1alpha1.MachineDeploymentStatus{
			Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n,
			ObservedGeneration: d.Generation, Selector: ours,
			Conditions: []v1alpha1.MachineDeploymentCondition{
				{Type: v1alpha1.MachineDeploymentAvailable, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonMinimumReplicasAvailable},
				{Type: v1alpha1.MachineDeploymentProgressing, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonNewMachineSetAvailable},
			},
		}, d.Status, cmpopts.EquateEmpty(),
			cmpopts.IgnoreFields(v1alpha1.MachineDeploymentCondition{}, "LastUpdateTime", "LastTransitionTime", "Message"),
			cmpopts.SortSlices(func(a, b v1alpha1.MachineDeploymentCondition) bool { return a.Type < b.Type }))
		if diff != "" {
			return fmt.Errorf("status (-want +got):\n%s", diff)
		}
		return nil
	})
}
