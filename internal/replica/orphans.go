package replica

import (
	"context"
	"crypto/rand"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/orphans"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/fence"
)

// newOrphans wires the sweep of orphans, which runs while the session leads.
func newOrphans(o Options, f *Replica) (*orphans.Controller, error) {
	identity := FleetIdentity(o.Fleet.Namespace, o.Fleet.Name)
	sweep, err := orphans.New(orphans.Config{
		Machines: f.machines.MachineV1alpha1(), Metadata: f.metadata, Secrets: f.control.CoreV1(), Leases: f.control.CoordinationV1(),
		Sweeper: f.drivers.Sweeper, Targets: f.targets, Events: f.recorder(v1alpha1.EventSourceSafety), Namespace: o.Namespace,
		Ledger:         types.NamespacedName{Namespace: o.Fleet.Namespace, Name: o.Fleet.Name + v1alpha1.LeaseSafety},
		ControlCluster: f.identity.ID,
		Served: func(ctx context.Context, namespace string) (bool, error) {
			return isServed(ctx, f.control, identity, namespace)
		},
		Held: f.holds.Held, Budget: f.budget, Deletions: f.deletions,
		Gate: fence.NewLeaderGate[string](f.session.fence), Token: rand.Text,
		Period: o.Safety.OrphanVMsPeriod, Quarantine: o.Safety.OrphanVMsQuarantine, Limit: o.Safety.MaxOrphanDeletions, DryRun: o.Safety.DryRun,
		Clock: clock.RealClock{}, Metrics: f.metrics, Tracer: f.tracer,
	})
	if err != nil {
		return nil, err
	}
	f.session.whenLeading = append(f.session.whenLeading, sweep.Led)
	f.collectors = append(f.collectors, sweep.Collectors()...)
	return sweep, nil
}

// isServed reports whether no other manager holds the Leases of Machine Controller Manager in a namespace, by live reads. In a namespace
// without roots they have no holder, and its orphans are the fleet's all the same.
func isServed(ctx context.Context, client kubernetes.Interface, fleet, namespace string) (bool, error) {
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
