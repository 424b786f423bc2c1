package replica

import (
	"context"
	"crypto/rand"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinedeployment/rollout"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/orphans"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/overshoot"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/overshoot/decide"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/unmanaged"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/kubeclient"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/fence"
)

// addOrphans adds the sweep of orphans, which runs while the session leads.
func (c *controllers) addOrphans(d *deps) (err error) {
	if d.o.Safety.OrphanVMsPeriod == 0 {
		return nil
	}
	fleet, safety := d.o.Fleet, d.o.Safety
	identity := FleetIdentity(fleet.Namespace, fleet.Name)
	c.orphans, err = orphans.New(orphans.Config{
		Machines: d.machines, Metadata: d.metadata, Secrets: d.control.CoreV1(), Leases: d.control.CoordinationV1(),
		Sweeper: d.drivers.Sweeper, Targets: d.targets, Events: d.recorder(v1alpha1.EventSourceSafety), Namespace: d.o.Namespace,
		Ledger:         types.NamespacedName{Namespace: fleet.Namespace, Name: fleet.Name + v1alpha1.LeaseSafety},
		ControlCluster: d.identity.ID,
		Served: func(ctx context.Context, namespace string) (bool, error) {
			if selected, _ := d.namespaces.Selected(namespace); !selected || !d.slots.switches.IsOn(namespace) {
				return false, nil
			}
			return isServed(ctx, d.control, identity, namespace)
		},
		Held: d.holds.Held, Budget: d.budget, Deletions: d.deletions,
		Gate: d.leaderGate(), Token: rand.Text,
		Period: safety.OrphanVMsPeriod, Quarantine: safety.OrphanVMsQuarantine, Limit: safety.MaxOrphanDeletions, DryRun: safety.DryRun,
		Clock: clock.RealClock{}, Metrics: d.metrics, Tracer: d.tracer,
	})
	if err != nil {
		return err
	}
	c.add(c.orphans, c.orphans.Collectors()...)
	return nil
}

// addOvershoot adds the controller that freezes MachineSets that create machines beyond their size.
func (c *controllers) addOvershoot(d *deps) (err error) {
	if d.o.Safety.OvershootPeriod == 0 {
		return nil
	}
	c.overshoot, err = overshoot.New(overshoot.Config{
		Namespace: d.o.Namespace, Machines: d.machines, Metadata: d.metadata, Events: d.recorder(v1alpha1.EventSourceSafety),
		Namespaces: d.slots.namespaces.Held, Serves: d.serves, Most: rollout.Most,
		Limits: decide.Limits{Up: d.o.Safety.OvershootUp, Down: d.o.Safety.OvershootDown}, Period: d.o.Safety.OvershootPeriod,
		Gate: d.leaderGate(), Clock: clock.RealClock{}, Metrics: d.metrics, Tracer: d.tracer,
	})
	if err != nil {
		return err
	}
	c.add(c.overshoot)
	return nil
}

// addUnmanaged adds the search for Nodes without a machine, if there are target clusters.
func (c *controllers) addUnmanaged(d *deps) (err error) {
	if d.o.Safety.OrphanVMsPeriod == 0 || d.targetMetadata == nil && d.byNamespace == nil {
		return nil
	}
	cfg := unmanaged.Config{
		Control: d.metadata, Target: d.targetMetadata, Namespace: d.o.Namespace, Serves: d.serves,
		Timeout: d.o.Machine.CreationTimeout, Period: d.o.Safety.OrphanVMsPeriod,
		Gate: fence.NewLeaderGate[string](d.session.fence), Clock: clock.RealClock{}, Metrics: d.metrics, Tracer: d.tracer,
	}
	if d.byNamespace != nil {
		cfg.Targets, cfg.Gate = d.byNamespace, d.slots.namespaceGate()
	}
	if c.unmanaged, err = unmanaged.New(cfg); err != nil {
		return err
	}
	c.add(c.unmanaged)
	return nil
}

// led begins the work of the leader.
func (c *controllers) led() {
	if c.orphans != nil {
		c.orphans.Led()
	}
	if c.overshoot != nil {
		c.overshoot.Begin()
	}
	if c.unmanaged != nil {
		c.unmanaged.Begin()
	}
}

// isServed reports whether no other manager holds the Leases of Machine Controller Manager in a
// namespace, by live reads. In a namespace without roots they have no holder, and its orphans are
// the fleet's all the same.
func isServed(ctx context.Context, client kubeclient.Interface, fleet, namespace string) (bool, error) {
	for _, name := range []string{v1alpha1.LeaseManager, v1alpha1.LeaseMachineController} {
		lease, err := client.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return false, fmt.Errorf("read Lease %s/%s: %w", namespace, name, err)
		}
		if holder := lease.Spec.HolderIdentity; holder != nil && *holder != "" && *holder != fleet {
			return false, nil
		}
	}
	return true, nil
}
