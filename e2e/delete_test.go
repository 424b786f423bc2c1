//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// TestDeleteNamespace: a user deletes a MachineDeployment without its machines, like kubectl delete
// --cascade=orphan, and another one of the same name adopts them. Then all objects of the namespace
// are deleted at once, in an arbitrary order, also a MachineSet and a Machine without an owner.
func TestDeleteNamespace(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "delete-namespace", "")
	s.deploy("pool", 2)
	s.createSet("set", 1)
	s.createMachine(s.name + "-alone")
	s.running("", 4)
	vms := s.joined()
	set := s.set("pool").Name
	belongs := func(deployment types.UID) {
		t.Helper()
		s.eventually(fmt.Sprintf("the MachineSet belongs to %q", deployment), func(ctx context.Context) error {
			found, err := s.api().MachineSets(s.name).Get(ctx, set, metav1.GetOptions{})
			if err != nil {
				return err
			}
			var owner types.UID
			if c := metav1.GetControllerOf(found); c != nil {
				owner = c.UID
			}
			if owner != deployment {
				return fmt.Errorf("it belongs to %q", owner)
			}
			return nil
		})
	}
	orphan := metav1.DeletePropagationOrphan
	s.must(s.api().MachineDeployments(s.name).Delete(t.Context(), "pool", metav1.DeleteOptions{PropagationPolicy: &orphan}))
	belongs("")
	s.eventually("the MachineDeployment is gone", func(ctx context.Context) error {
		_, err := s.api().MachineDeployments(s.name).Get(ctx, "pool", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	belongs(s.deploy("pool", 2).UID)
	s.reports("pool", 2)
	if after := s.joined(); !maps.Equal(after, vms) {
		t.Errorf("the VMs of machines were %v and are %v", vms, after)
	}

	namespaces := s.lab.Control.CoreV1().Namespaces()
	s.must(namespaces.Delete(t.Context(), s.name, metav1.DeleteOptions{}))
	s.lasting("the namespace is gone, and what was in it", func(ctx context.Context) error {
		if ns, err := namespaces.Get(ctx, s.name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %v, %w", ns.Status.Conditions, err)
		}
		return nil
	})
	left, err1 := s.lab.Cloud.VMs(t.Context(), s.name)
	nodes, err2 := s.nodes(t.Context())
	tokens, err3 := s.tokens(t.Context())
	s.must(errors.Join(err1, err2, err3))
	if len(left)+len(nodes)+len(tokens) > 0 {
		t.Errorf("left are VMs %v, Nodes %v, tokens %v", left, nodes, tokens)
	}
}

// createSet creates a MachineSet of the namespace's class.
func (s *space) createSet(name string, replicas int32) *v1alpha1.MachineSet {
	s.Helper()
	labels := map[string]string{v1alpha1.LabelName: name}
	created, err := s.api().MachineSets(s.name).Create(s.Context(), &v1alpha1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.name, Labels: labels},
		Spec: v1alpha1.MachineSetSpec{
			Replicas: replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1alpha1.MachineTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: simulatedMachine()},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	return created
}
