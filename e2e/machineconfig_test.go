//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	configv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// TestMachineConfiguration configures VMs with real kubelets by real daemons, in a separate lab.
func TestMachineConfiguration(t *testing.T) {
	if !harness.KubeletsWork(t) {
		t.Skip("the lab boots simulated Nodes only")
	}
	t.Parallel()
	lab := startLab(t, "machineconfig", func(o *harness.Options) {
		o.Replicas, o.MachineConfiguration, o.DaemonFlags = 2, true, harness.DaemonFlags
	})
	t.Run("Daemon", func(t *testing.T) {
		t.Parallel()
		newSpace(t, lab, "daemon", realKubelet).daemonWorks()
	})
	t.Run("Pool", func(t *testing.T) {
		t.Parallel()
		poolRolls(newSpace(t, lab, "pool", realKubelet))
	})
	t.Run("Boot", func(t *testing.T) {
		t.Parallel()
		machinesBootConfigured(bootSpace(t, lab, "boot"))
	})
	t.Run("InPlace", func(t *testing.T) {
		t.Parallel()
		updatesInPlace(newSpace(t, lab, "in-place", realKubelet))
	})
}

// inPool labels the Nodes of a MachineDeployment.
func inPool(pool string) func(*v1alpha1.MachineDeployment) {
	return func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{harness.LabelPool: pool}
	}
}

// poolRolls: a pool of five takes a file, a unit and a KubeletConfig, two Nodes at a time, and then
// a change without a reboot, one Node at a time.
func poolRolls(s *space) {
	const size, demo = 5, "/etc/demo/motd"
	s.deploy("workers", size, inPool(s.name))
	s.running("workers", size)
	vms := s.joined()
	budget, err := s.lab.WatchBudget(s.Context(), s.name, size*40/100)
	s.must(err)

	s.must(s.lab.SetConfig(s.Context(), s.name, "50-"+s.name,
		harness.Ignition([]string{harness.File(demo, "one")}, []string{harness.Unit("demo.service")})))
	_, err = s.lab.Configs.KubeletConfigs().Create(s.Context(), &configv1alpha1.KubeletConfig{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Spec: configv1alpha1.KubeletConfigSpec{
			MachineConfigPoolSelector: &metav1.LabelSelector{MatchLabels: map[string]string{harness.LabelPool: s.name}},
			KubeletConfig:             runtime.RawExtension{Raw: []byte(`{"maxPods": 55}`)},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	pool := harness.NewPool(s.name, intstr.FromString("40%"))
	pool.Spec.Actions = []configv1alpha1.ActionRule{{Path: "/etc/demo", Action: configv1alpha1.ActionNone}}
	_, err = s.lab.Configs.MachineConfigPools().Create(s.Context(), pool, metav1.CreateOptions{})
	s.must(err)
	s.eventually("all Nodes have the kubelet's setting, the file and the unit", func(ctx context.Context) error {
		nodes, err := s.lab.PoolNodes(ctx, s.name)
		if err != nil {
			return err
		}
		var wrong deviations
		wrong.unless(len(nodes) == size, "there are %d", len(nodes))
		for _, n := range nodes {
			pods := n.Status.Capacity[corev1.ResourcePods]
			wrong.unless(pods.Value() == 55, "%s has room for %d pods", n.Name, pods.Value())
			vm := configured{T: s.T, lab: s.lab, node: n.Name, vm: vms[n.Name]}
			wrong.unless(vm.contains(demo, "one") == nil, "%s: %v", n.Name, vm.contains(demo, "one"))
		}
		return wrong.err()
	})
	target := s.isOnTarget(size)
	if most := budget.Most(); most != size*40/100 {
		s.Errorf("with maxUnavailable 40%% at most %d Nodes were updated at a time, want %d", most, size*40/100)
	}

	budget.SetLimit(1)
	s.must(s.lab.PatchPool(s.Context(), s.name, `{"spec":{"maxUnavailable":1}}`))
	before := boots(s)
	s.must(s.lab.SetConfig(s.Context(), s.name, "50-"+s.name,
		harness.Ignition([]string{harness.File(demo, "two")}, []string{harness.Unit("demo.service")})))
	_, err = s.lab.NewTarget(s.Context(), s.name, target)
	s.must(err)
	s.isOnTarget(size)
	for node, vm := range vms {
		(&configured{T: s.T, lab: s.lab, node: node, vm: vm}).has(demo, "two")
	}
	for node, id := range boots(s) {
		if id != before[node] {
			s.Errorf("Node %s was rebooted for a change that needs no reboot", node)
		}
	}
	s.must(budget.Stop())
}

// isOnTarget waits until all Nodes of the pool of the namespace have its target and the pool
// reports that, and returns the target.
func (s *space) isOnTarget(size int) (target string) {
	s.Helper()
	s.eventually("the pool is updated", func(ctx context.Context) error {
		p, err := s.lab.Configs.MachineConfigPools().Get(ctx, s.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		target = p.Status.CurrentMachineConfig
		if target == "" || p.Status.CompletedMachineConfig != target || int(p.Status.ReadyMachineCount) != size {
			return fmt.Errorf("its status is %+v", p.Status)
		}
		return nil
	})
	s.must(s.lab.AllOn(s.Context(), s.name, target, size))
	return target
}

// boots returns the IDs of the last boots of the Nodes of the pool.
func boots(s *space) map[string]string {
	s.Helper()
	nodes, err := s.lab.PoolNodes(s.Context(), s.name)
	s.must(err)
	ids := map[string]string{}
	for _, n := range nodes {
		ids[n.Name] = n.Status.NodeInfo.BootID
	}
	return ids
}
