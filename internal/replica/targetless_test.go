package replica

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// TestNoTargetCluster: machines that do not become Nodes are available when they have existed for
// minReadySeconds, which a flag switches on.
func TestNoTargetCluster(t *testing.T) {
	t.Parallel()
	o := replicaOptions(func(o *Options) { o.Machine.CountMinReady = true })
	synctest.Test(t, func(t *testing.T) {
		const minReady = 5 * time.Second
		r := newTrial(t, o, 1, nil)
		r.noTarget = true
		defer r.end()
		r.createUnmanaged()
		r.createClass("a")
		root := r.putRoot("a", "d", 2)
		r.control.Edit("machinedeployments", "a", "d", func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, int64(minReady.Seconds()), "spec", "minReadySeconds") // it is an object
		})
		r.start("fleet-0")
		r.until("2 machines are available", func() bool {
			reported := typed[v1alpha1.MachineDeployment](r, r.control.Get("machinedeployments", "a", "d")).Status.AvailableReplicas
			for _, o := range r.control.List("machinesets") {
				reported = max(reported, typed[v1alpha1.MachineSet](r, o).Status.AvailableReplicas)
			}
			old := slices.DeleteFunc(r.machinesOf("d"), func(m *v1alpha1.Machine) bool {
				return time.Since(m.Status.CurrentStatus.LastUpdateTime.Time) < minReady
			})
			if int(reported) > len(old) {
				t.Errorf("%d machines are reported as available, and %d have existed for %s", reported, len(old), minReady)
			}
			return r.missing() == ""
		})
		for _, m := range r.machinesOf("d") {
			address := slices.ContainsFunc(m.Status.Addresses, func(a corev1.NodeAddress) bool {
				return a.Type == corev1.NodeInternalIP && a.Address != ""
			})
			if m.Status.CurrentStatus.Phase != v1alpha1.MachineAvailable || m.Spec.ProviderID == "" || !address {
				t.Errorf("machine %s: %+v", m.Name, m.Status)
			}
		}
		for _, secret := range r.target.List("secrets") {
			if secret.GetNamespace() == "kube-system" {
				t.Errorf("there is a bootstrap token %s", secret.GetName())
			}
		}
		r.putRoot("a", "d", 1)
		r.until("one machine is left, with its VM", func() bool { return r.missing() == "" })
		r.deleteRoot(root)
		r.until("nothing is left", func() bool { return r.missing() == "" && len(r.control.List("machinedeployments")) == 0 })
	})
}
