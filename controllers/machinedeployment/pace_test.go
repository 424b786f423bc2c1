package machinedeployment

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// Nodes that are configured reboot one after the other: the counts of their deployment are written
// at the slow pace, and are right in the end.
func TestCountsAreWrittenAtTheSlowPaceWhileMachinesRecover(t *testing.T) {
	onBench(t, func(b *bench) {
		const replicas, reboot = 20, 3 * time.Second
		b.create(func(spec *v1alpha1.MachineDeploymentSpec) { spec.Replicas = replicas })
		set := b.sets()[0]
		turns := func(i int, phase v1alpha1.MachinePhase) {
			b.server.Merge("machines", "n", fmt.Sprint("m", i), fmt.Sprintf(`{"status":{"currentStatus":{"phase":%q}}}`, phase), "status")
		}
		for i := range replicas {
			m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: fmt.Sprint("m", i), Labels: set.Spec.Template.Labels}}
			m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, v1alpha1.SchemeGroupVersion.WithKind("MachineSet"))}
			apiserver.Add(b.server, m)
			turns(i, v1alpha1.MachineRunning)
		}
		b.pass(time.Minute)
		status := func() (ready int32, writes int) {
			return b.deployment().Status.ReadyReplicas, b.server.Count("patch machinedeployments/status")
		}
		turns(0, v1alpha1.MachineUnknown) // of which one condition reports that too few are available, from here to the end
		b.pass(statusPace)
		ready, before := status()
		if ready != replicas-1 {
			t.Errorf("%d are ready %s after one is not, want %d", ready, statusPace, replicas-1)
		}
		for i := 1; i < replicas; i++ {
			turns(i, v1alpha1.MachineUnknown)
			b.pass(reboot / 2)
			turns(i-1, v1alpha1.MachineRunning)
			b.pass(reboot / 2)
		}
		turns(replicas-1, v1alpha1.MachineRunning)
		b.pass(2 * statusPace)
		took := (replicas - 1) * reboot
		ready, after := status()
		if n, most := after-before, int(took/slowStatusPace)+2; n > most {
			t.Errorf("%d writes of the status in %s, want %d at most", n, took, most)
		}
		if ready != replicas {
			t.Errorf("%d are ready in the end, want %d", ready, replicas)
		}
	})
}
