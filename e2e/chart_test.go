//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

const (
	chart = "../charts/machine-controller-fleet"
	// chartNamespace is that of the releases, in both clusters, and the one that a release for one
	// namespace serves.
	chartNamespace = "chart"
	chartRelease   = "chart"
)

// TestChart: the API server accepts what Helm renders and installs, on one cluster and on two, with
// the rights that are meant and no others; and upgrades keep what must not change.
func TestChart(t *testing.T) {
	t.Parallel()
	lab := shared(t)
	chartNamespaceIn(t, lab.Control)
	t.Run("renders", func(t *testing.T) { chartRenders(t, lab) })
	t.Run("on two clusters", func(t *testing.T) { chartOnTwoClusters(t, lab) })
	t.Run("upgrade keeps the number of replicas", func(t *testing.T) { upgradeKeepsReplicas(t, lab) })
	t.Run("upgrade refuses other slots", func(t *testing.T) { upgradeRefusesOtherSlots(t, lab) })
}

// chartRenders: the API server accepts what the chart renders from each of its files of values.
func chartRenders(t *testing.T, lab *harness.Lab) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(chart, "ci", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("want files of values in the chart's folder ci, got %v, %v", files, err)
	}
	for _, namespace := range []string{"shoot--garden--one", "shoot--garden--two"} { // that landscape.yaml names
		if _, err := lab.Kubectl(t.Context(), "create", "namespace", namespace); err != nil {
			t.Fatal(err)
		}
	}
	for _, values := range files {
		t.Run(filepath.Base(values), func(t *testing.T) {
			// The lab does not have the definitions of the Prometheus operator and of KEDA, and no release
			// of this name, with which a dry run would merge what is rendered. The pod of helm test needs
			// the release's ServiceAccount, which a dry run does not create.
			rendered := helm(t, lab, "admin.kubeconfig", "template", "rendered", chart, "-f", values, "--skip-tests", "--set",
				"serviceMonitor.enabled=false,prometheusRule.enabled=false,autoscaling.externalMetric=load")
			file := filepath.Join(t.TempDir(), "rendered.yaml")
			if err := os.WriteFile(file, []byte(rendered), 0o600); err != nil {
				t.Fatal(err)
			}
			// The lab has the definitions already, which the release does not own.
			out, err := lab.Kubectl(t.Context(), "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", file)
			if err != nil {
				t.Fatal(err)
			}
			if want, got := strings.Count(rendered, "\nkind: "), strings.Count(out, "(server dry run)"); got != want {
				t.Errorf("want %d objects accepted, got:\n%s", want, out)
			}
		})
	}
}

// chartOnTwoClusters installs the chart as for two clusters, reviews the rights in both, and
// uninstalls it.
func chartOnTwoClusters(t *testing.T, lab *harness.Lab) {
	t.Helper()
	for _, cluster := range []struct {
		client               kubernetes.Interface
		kubeconfig, values   string
		allowed, notAllowed  []authorizationv1.ResourceAttributes
		definitionsInstalled bool
	}{
		{
			client: lab.Control, kubeconfig: "admin.kubeconfig", values: "control-cluster.yaml", definitionsInstalled: true,
			allowed: []authorizationv1.ResourceAttributes{
				{Namespace: chartNamespace, Verb: "watch", Group: v1alpha1.GroupName, Resource: "machines"},
				{Namespace: chartNamespace, Verb: "delete", Group: v1alpha1.GroupName, Resource: "machinesets"},
				{Namespace: chartNamespace, Verb: "patch", Group: v1alpha1.GroupName, Resource: "machinedeployments", Subresource: "status"},
				{Namespace: chartNamespace, Verb: "update", Resource: "secrets"},
				{Namespace: chartNamespace, Verb: "watch", Resource: "secrets", Name: "awaited"},
				{Namespace: chartNamespace, Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Name: "chart-slot-001"},
			},
			notAllowed: []authorizationv1.ResourceAttributes{
				{Namespace: "default", Verb: "get", Group: v1alpha1.GroupName, Resource: "machines"},
				{Namespace: "default", Verb: "get", Resource: "secrets"},
				{Namespace: "default", Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Name: v1alpha1.LeaseManager},
				{Namespace: chartNamespace, Verb: "delete", Group: v1alpha1.GroupName, Resource: "machinedeployments"},
				{Namespace: chartNamespace, Verb: "delete", Resource: "secrets"},
				{Namespace: chartNamespace, Verb: "patch", Group: "coordination.k8s.io", Resource: "leases", Name: "chart-slot-001"},
				{Namespace: chartNamespace, Verb: "delete", Group: "coordination.k8s.io", Resource: "leases", Name: "chart-slot-001"},
				{Verb: "get", Resource: "nodes"},
			},
		},
		{
			client: lab.Target, kubeconfig: "target.kubeconfig", values: "target-cluster.yaml",
			allowed: []authorizationv1.ResourceAttributes{
				{Verb: "watch", Resource: "nodes"},
				{Verb: "delete", Resource: "nodes"},
				{Verb: "patch", Resource: "nodes", Subresource: "status"},
				{Namespace: "kube-system", Verb: "create", Resource: "secrets"},
				{Namespace: "kube-system", Verb: "delete", Resource: "secrets"},
				{Namespace: "default", Verb: "list", Resource: "pods"},
				{Namespace: "default", Verb: "create", Resource: "pods", Subresource: "eviction"},
			},
			notAllowed: []authorizationv1.ResourceAttributes{
				{Namespace: "kube-system", Verb: "get", Resource: "secrets"},
				{Namespace: "kube-system", Verb: "list", Resource: "secrets"},
				{Namespace: "kube-system", Verb: "update", Resource: "secrets"},
				{Namespace: "kube-system", Verb: "patch", Resource: "secrets"},
				{Namespace: "kube-system", Verb: "deletecollection", Resource: "secrets"},
				{Namespace: "default", Verb: "get", Resource: "secrets"},
				{Namespace: "default", Verb: "create", Resource: "pods"},
				{Namespace: chartNamespace, Verb: "get", Group: "coordination.k8s.io", Resource: "leases", Name: "chart-slot-001"},
			},
		},
	} {
		t.Run(cluster.values, func(t *testing.T) {
			chartNamespaceIn(t, cluster.client)
			args := []string{chartRelease, chart, "-f", filepath.Join(chart, "ci", cluster.values), "--set", "replicas=0"}
			if cluster.definitionsInstalled {
				args = append(args, "--take-ownership")
			}
			helm(t, lab, cluster.kubeconfig, append([]string{"install", "--dry-run=server"}, args...)...)
			t.Cleanup(func() { helm(t, lab, cluster.kubeconfig, "uninstall", chartRelease, "--ignore-not-found", "--wait") })
			helm(t, lab, cluster.kubeconfig, append([]string{"install"}, args...)...)
			helm(t, lab, cluster.kubeconfig, append([]string{"upgrade"}, args...)...)
			for _, attributes := range cluster.allowed {
				review(t, cluster.client, attributes, true)
			}
			for _, attributes := range cluster.notAllowed {
				review(t, cluster.client, attributes, false)
			}
			helm(t, lab, cluster.kubeconfig, "uninstall", chartRelease, "--wait")
			if cluster.definitionsInstalled {
				// The definitions still exist, and with them all Machines.
				if _, err := lab.Machines.MachineV1alpha1().Machines(chartNamespace).List(t.Context(), metav1.ListOptions{}); err != nil {
					t.Errorf("after helm uninstall: %v", err)
				}
			}
		})
	}
}

// review checks whether the release's ServiceAccount has a right.
func review(t *testing.T, client kubernetes.Interface, attributes authorizationv1.ResourceAttributes, want bool) {
	t.Helper()
	answer, err := client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               fmt.Sprintf("system:serviceaccount:%s:%s", chartNamespace, chartRelease),
			ResourceAttributes: &attributes,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if answer.Status.Allowed != want {
		t.Errorf("may the ServiceAccount %+v: want %t, got %t", attributes, want, answer.Status.Allowed)
	}
}

func chartNamespaceIn(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	_, err := client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: chartNamespace}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// helm runs Helm against a cluster of the lab, in the chart's namespace, and returns what it
// prints. It does so also when the test has ended.
func helm(t *testing.T, lab *harness.Lab, kubeconfig string, args ...string) string {
	t.Helper()
	output, err := tryHelm(t, lab, kubeconfig, args...)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

// tryHelm is helm, and returns an error, with the errors that Helm prints, where Helm fails.
func tryHelm(t *testing.T, lab *harness.Lab, kubeconfig string, args ...string) (string, error) {
	t.Helper()
	bin, err := harness.Bin()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	var output, failures strings.Builder
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(bin, "helm"), append(args, "--namespace", chartNamespace)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(lab.Dir, kubeconfig),
		"HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	cmd.Stdout, cmd.Stderr = &output, &failures
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("helm %s: %w; hack/build-helm.sh builds Helm\n%s", strings.Join(args, " "), err, failures.String())
	}
	return output.String(), nil
}
