//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated/cloudapi"
)

// foreignNode creates a Node of a VM that the lab's cloud does not have.
func (s *space) foreignNode(name string) *corev1.Node {
	s.Helper()
	node, err := s.lab.Target.CoreV1().Nodes().Create(s.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.NodeSpec{ProviderID: cloudapi.ProviderIDPrefix + "sim-9/sim-9a/i-of-another-fleet"},
	}, metav1.CreateOptions{})
	s.must(err)
	s.Cleanup(func() {
		// Unless the test has deleted it.
		_ = s.lab.Target.CoreV1().Nodes().Delete(context.WithoutCancel(s.Context()), name, metav1.DeleteOptions{})
	})
	return node
}

// isAnotherVMs is what a machine reports about a Node of another VM. It does not contain the provider ID of that VM.
func isAnotherVMs(node *corev1.Node) string {
	return fmt.Sprintf("Node %q belongs to another VM", node.Name)
}

// TestForeignNode: the Node of another VM is left alone, until the end of the machine that has its name.
func TestForeignNode(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "foreign", "")
	name := s.name + "-a"
	node := s.foreignNode(name)
	m := s.createMachine(name)
	s.machineFails(name, driver.Internal, isAnotherVMs(node))
	s.oneEvent(m.UID, v1alpha1.EventCreateFailed)
	s.remove("machines", name)
	s.eventually("the machine is gone, and its VM", func(ctx context.Context) error {
		machines, err := s.machines(ctx, "")
		if err != nil {
			return err
		}
		vms, err := s.lab.Cloud.VMs(ctx, s.name)
		if err == nil && len(machines)+len(vms) > 0 {
			err = fmt.Errorf("%d machines and %d VMs are left", len(machines), len(vms))
		}
		return err
	})
	after, err := s.lab.Target.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	s.must(err)
	if after.UID != node.UID || len(after.Finalizers) > 0 || after.Labels[v1alpha1.LabelMachineName] != "" {
		t.Errorf("the Node of another VM has finalizers %v, labels %v", after.Finalizers, after.Labels)
	}
}

// TestForeignNodeRemoved: the creation continues when a user removes the conflicting Node.
func TestForeignNodeRemoved(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "foreign-removed", "")
	name := s.name + "-a"
	node := s.foreignNode(name)
	s.createMachine(name)
	s.machineFails(name, driver.Internal, isAnotherVMs(node))
	s.must(s.lab.Target.CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{}))
	s.running("", 1)
	s.joined()
	s.remove("machines", name)
	s.gone()
}

// TestForeignNodeReplaced: a MachineSet reports a machine that cannot join, and replaces it after the timeout: the next one has
// another name.
func TestForeignNodeReplaced(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "foreign-replaced", "")
	s.deploy("pool", 0, func(d *v1alpha1.MachineDeployment) {
		// The next machine has to join within this time, also while other tests run.
		d.Spec.Template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachineCreationTimeout: &metav1.Duration{Duration: time.Minute}}
	})
	var unlucky string
	s.eventually("the name of the first machine is known", func(ctx context.Context) error {
		list, err := s.api().MachineSets(s.name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) == 0 {
			return errors.New("there is no MachineSet")
		}
		unlucky = machinefacts.Name(list.Items[0].Name, list.Items[0].UID, 0)
		return nil
	})
	node := s.foreignNode(unlucky)
	s.scale("pool", 1)
	s.fails("pool", 1, driver.Internal, isAnotherVMs(node))
	s.eventually("the machine is replaced", func(ctx context.Context) error {
		machines, err := s.machines(ctx, "pool")
		if err != nil {
			return err
		}
		for _, m := range machines {
			if m.Name == unlucky && m.DeletionTimestamp == nil {
				return fmt.Errorf("it is there, phase %s", m.Status.CurrentStatus.Phase)
			}
		}
		return nil
	})
	s.running("pool", 1)
	s.joined()
}
