//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated/cloudapi"
)

// TestDeleteWithoutClass deletes machines whose class never existed.
func TestDeleteWithoutClass(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "delete-classless", "")
	s.deploy("pool", 2, func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "never" })
	s.fails("pool", 2, driver.NotFound, `"never"`)
	s.remove("machinedeployments", "pool")
	s.gone()
}

// TestDeleteInCreation deletes machines while creates of their VMs are in flight.
func TestDeleteInCreation(t *testing.T) {
	t.Parallel()
	const zone = "sim-2b"
	s := newSpace(t, shared(t), "delete-creating", `{"zone":"`+zone+`"}`)
	s.fault(zone, cloudapi.FaultTimeoutAfter)
	s.deploy("pool", 3)
	s.eventually("the cloud has created a VM that the fleet cannot have recorded", func(ctx context.Context) error {
		machines, err1 := s.machines(ctx, "pool")
		vms, err2 := s.lab.Cloud.History(ctx, s.name)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if len(vms) == 0 {
			return fmt.Errorf("there are %d machines and no VM", len(machines))
		}
		return nil
	})
	s.remove("machinedeployments", "pool")
	s.gone()
	if vms := s.history(); len(vms) == 0 || len(vms) > 3 {
		t.Errorf("the cloud has made %d VMs for 3 machines", len(vms))
	}
}

// TestDeleteNamespace deletes all objects of a namespace at once, in an arbitrary order.
func TestDeleteNamespace(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "delete-namespace", "")
	s.deploy("pool", 2)
	s.createSet("set", 1)
	s.createMachine(s.name + "-alone")
	s.running("", 4)
	s.joined()
	namespaces := s.lab.Control.CoreV1().Namespaces()
	s.must(namespaces.Delete(t.Context(), s.name, metav1.DeleteOptions{}))
	s.eventually("the namespace is gone, and what was in it", func(ctx context.Context) error {
		if ns, err := namespaces.Get(ctx, s.name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %v, %w", ns.Status.Conditions, err)
		}
		return nil
	})
	vms, err1 := s.lab.Cloud.VMs(t.Context(), s.name)
	nodes, err2 := s.nodes(t.Context())
	tokens, err3 := s.tokens(t.Context())
	s.must(errors.Join(err1, err2, err3))
	if len(vms)+len(nodes)+len(tokens) > 0 {
		t.Errorf("left are VMs %v, Nodes %v, tokens %v", vms, nodes, tokens)
	}
}
