//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// replicasOnly are the arguments for a release with replicas that no Node is fit for, and nothing
// else: its objects do not collide with those of other tests.
func replicasOnly(command, release string, args ...string) []string {
	return append([]string{
		command, release, chart, "-f", chart + "/ci/one-cluster.yaml", "--set", "nodeSelector.nowhere=yes",
		"--set", "install.crds=false,install.controlAccess=false,install.targetAccess=false,flowControl.enabled=false",
	}, args...)
}

// upgradeKeepsReplicas: where the value replicas is null, an upgrade changes the number neither of
// a StatefulSet that was installed so, nor of one whose last manifest had a number.
func upgradeKeepsReplicas(t *testing.T, lab *harness.Lab) {
	t.Helper()
	for release, installed := range map[string]string{"external": "null", "switched": "2"} {
		t.Run(release, func(t *testing.T) {
			t.Cleanup(func() { helm(t, lab, "admin.kubeconfig", "uninstall", release, "--ignore-not-found") })
			helm(t, lab, "admin.kubeconfig", replicasOnly("install", release, "--set-json", "replicas="+installed)...)
			if release == "external" {
				wantReplicas(t, lab, release, 1)
			}
			for _, replicas := range []int32{4, 3} {
				scaleStatefulSet(t, lab, release, replicas)
				for range 2 {
					helm(t, lab, "admin.kubeconfig", replicasOnly("upgrade", release, "--set-json", "replicas=null")...)
					wantReplicas(t, lab, release, replicas)
				}
			}
		})
	}
}

// upgradeRefusesOtherSlots: an upgrade that changes what is fixed when a fleet is installed fails,
// and names both values.
func upgradeRefusesOtherSlots(t *testing.T, lab *harness.Lab) {
	t.Helper()
	const release = "fixed"
	t.Cleanup(func() { helm(t, lab, "admin.kubeconfig", "uninstall", release, "--ignore-not-found") })
	helm(t, lab, "admin.kubeconfig", replicasOnly("install", release, "--set", "replicas=0")...)
	refused := func(want string, args ...string) {
		t.Helper()
		_, err := tryHelm(t, lab, "admin.kubeconfig", replicasOnly("upgrade", release, append(args, "--set", "replicas=0")...)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("helm upgrade %s: want an error with %q, got %v", strings.Join(args, " "), want, err)
		}
	}

	// No replica has run, and the Leases are here: anything may be changed, also back.
	helm(t, lab, "admin.kubeconfig", replicasOnly("upgrade", release, "--set", "replicas=0,slots=512")...)
	// The Leases are in another cluster, which Helm does not reach.
	elsewhere := "control.kubeconfigSecret.name=control"
	refused("slots: expected 512, with which fleet fixed was installed (StatefulSet chart/fixed), got 256", "--set", elsewhere)
	helm(t, lab, "admin.kubeconfig", replicasOnly("upgrade", release, "--set", "replicas=0,slots=512,"+elsewhere)...)

	leader := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name:        member.LeaderLeaseName(release),
		Annotations: map[string]string{v1alpha1.AnnotationSlots: "128", v1alpha1.AnnotationShardBy: "namespace"},
	}}
	leases := lab.Control.CoordinationV1().Leases(chartNamespace)
	if _, err := leases.Create(t.Context(), leader, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	refused("slots: expected 128, with which fleet fixed was installed (Lease chart/fixed-leader), got 512", "--set",
		"slots=512,shardBy=namespace")
	refused("shardBy: expected namespace", "--set", "slots=128")
	helm(t, lab, "admin.kubeconfig", replicasOnly("upgrade", release, "--set", "replicas=0,slots=128,shardBy=namespace")...)
}

func wantReplicas(t *testing.T, lab *harness.Lab, name string, want int32) {
	t.Helper()
	set, err := lab.Control.AppsV1().StatefulSets(chartNamespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := *set.Spec.Replicas; got != want {
		t.Errorf("StatefulSet %s: want %d replicas, got %d", name, want, got)
	}
}

// scaleStatefulSet scales as an autoscaler does, by the subresource.
func scaleStatefulSet(t *testing.T, lab *harness.Lab, name string, replicas int32) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	_, err := lab.Control.AppsV1().StatefulSets(chartNamespace).Patch(t.Context(), name, types.MergePatchType, patch,
		metav1.PatchOptions{}, "scale")
	if err != nil {
		t.Fatal(err)
	}
}
