//go:build e2e

package smoke

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/labtest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/supervise"
)

// A replica has the access that it needs, and no more.
func testRights(t *testing.T, l lab) {
	client := l.client(t, "fleet-0.control.kubeconfig")
	for request, want := range map[string]bool{
		"create machine.sapcloud.io machines default":            true,
		"patch machine.sapcloud.io machinesets default":          true,
		"update coordination.k8s.io leases " + fleetNamespace:    true,
		"patch coordination.k8s.io leases " + fleetNamespace:     false,
		"list coordination.k8s.io leases default":                false,
		"create events.k8s.io events default":                    true,
		"create /v1 secrets kube-system":                         true,
		"create /v1 nodes ":                                      false,
		"delete apps deployments default":                        false,
		"create /v1 pods default":                                false,
		"bind rbac.authorization.k8s.io clusterroles ":           false,
		"create certificates.k8s.io certificatesigningrequests ": false,
	} {
		fields := strings.Split(request, " ")
		review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: fields[0], Group: strings.TrimPrefix(fields[1], "/v1"), Resource: fields[2], Namespace: fields[3],
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if review.Status.Allowed != want {
			t.Errorf("%s: allowed %v, want %v", request, review.Status.Allowed, want)
		}
	}
}

// The audit log has each user by name, and omits Leases of Nodes.
func testAuditLog(t *testing.T, l lab) {
	file, err := os.Open(l.path("audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	users := map[string]bool{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			Level, Stage string
			User         struct{ Username string }
			ObjectRef    struct{ Resource, Namespace string }
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatal(err)
		}
		users[event.User.Username] = true
		if event.Level != "Metadata" || event.Stage == "RequestReceived" ||
			event.ObjectRef.Resource == "leases" && event.ObjectRef.Namespace == "kube-node-lease" {
			t.Errorf("event %+v", event)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"fleet-0", "fleet-2", "cloudsim", "system:kube-scheduler"} {
		if !users[user] {
			t.Errorf("%s is not in the audit log; these are: %v", user, users)
		}
	}
}

// A machine joins with a bootstrap token, runs pods, and has ended when its power is off.
func testMachine(t *testing.T, l lab) {
	needMachines(t)
	client := l.client(t, "target.kubeconfig")
	vm := startMachine(t, l, client, "machine-0")
	beCloud(t, client, "machine-0")
	labtest.Until(t, "the Node is ready", func(ctx context.Context) error {
		node, err := client.CoreV1().Nodes().Get(ctx, "machine-0", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return errors.New("it is not")
	})
	runPods(t, client)

	inside := insideMachine(t, l)
	if err := vm.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = vm.Wait()
	labtest.Until(t, "the machine is off", func(context.Context) error {
		for _, id := range inside {
			if !id.State().Gone() {
				return fmt.Errorf("process %d lives", id.PID)
			}
		}
		return nil
	})
}

// needMachines skips a test where machines cannot run.
func needMachines(t *testing.T) {
	t.Helper()
	if output, err := exec.Command(binary(t, "lab"), "vm", "--check").CombinedOutput(); err != nil {
		if os.Getenv("LAB_REQUIRE_KUBELET") == "1" {
			t.Fatal(string(output))
		}
		t.Skip(string(output))
	}
}

const machineMark = "SMOKE_MACHINE"

// insideMachine waits until a machine has all of its processes: the hull, init, and the kubelet.
func insideMachine(t *testing.T, l lab) (ids []supervise.ID) {
	t.Helper()
	labtest.Until(t, "the machine boots", func(context.Context) (err error) {
		ids, err = supervise.WithEnv(machineMark, string(l))
		if err == nil && len(ids) < 3 {
			err = fmt.Errorf("it has %d processes", len(ids))
		}
		return err
	})
	return ids
}

// bootstrapToken creates a token with which machines may join. It belongs to no Machine, so the
// approver of the lab ignores requests with it; Kubernetes approves them, because the token may do
// that.
func bootstrapToken(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	const id, secret = "abcdef", "0123456789abcdef"
	if _, err := client.CoreV1().Secrets("kube-system").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "smoke:approve-first-node-certificate"},
		RoleRef: rbacv1.RoleRef{
			APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
		},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "system:bootstrap:" + id}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return id + "." + secret
}

// startMachine switches a machine on, as a cloud does.
func startMachine(t *testing.T, l lab, client kubernetes.Interface, name string) *exec.Cmd {
	t.Helper()
	token := bootstrapToken(t, client)
	config := l.config(t, "target.kubeconfig")
	bootstrap := filepath.Join(t.TempDir(), "bootstrap.kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"lab": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"lab": {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{"lab": {Cluster: "lab", AuthInfo: "lab"}},
		CurrentContext: "lab",
	}, bootstrap); err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, config.CAData, 0o600); err != nil {
		t.Fatal(err)
	}
	server, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	console, err := os.Create(l.path("logs/" + name + ".log"))
	if err != nil {
		t.Fatal(err)
	}
	defer console.Close()
	vm := exec.Command(binary(t, "lab"), "vm", "--dir="+l.path(name), "--name="+name, "--provider-id=simulated:///r/z/"+name,
		"--node-ip=127.0.0.1", "--port=10251", "--health-port=10252", "--cpu=4", "--memory-mib=8192", "--labels=smoke=yes",
		"--bootstrap-kubeconfig="+bootstrap, "--client-ca-file="+ca,
		"--forced-env=KUBERNETES_SERVICE_HOST="+server.Hostname()+",KUBERNETES_SERVICE_PORT="+server.Port())
	vm.Env = append(os.Environ(), "LAB_ID="+l.id(t), machineMark+"="+string(l))
	vm.Stdout, vm.Stderr = console, console
	if err := vm.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = vm.Process.Kill() })
	return vm
}

// beCloud does the cloud's part in a Node's joining.
func beCloud(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	patch := func(ctx context.Context, kind types.PatchType, body string, subresources ...string) error {
		_, err := client.CoreV1().Nodes().Patch(ctx, name, kind, []byte(body), metav1.PatchOptions{}, subresources...)
		return err
	}
	labtest.Until(t, "the Node registers", func(ctx context.Context) error {
		return patch(ctx, types.StrategicMergePatchType, `{"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}]}}`, "status")
	})
	labtest.Until(t, "the Node loses its taints", func(ctx context.Context) error {
		return patch(ctx, types.MergePatchType, `{"spec":{"taints":null}}`)
	})
}

// runPods runs a Deployment, and reads its logs.
func runPods(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	replicas := int32(2)
	labels := map[string]string{"app": "smoke"}
	if _, err := client.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "smoke"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{NodeSelector: map[string]string{"smoke": "yes"}, Containers: []corev1.Container{{
					Name: "main", Image: "registry.example.com/any:v1",
					Command: []string{"sh", "-c", "echo hello from $(hostname); echo at $KUBERNETES_SERVICE_HOST; exec sleep 1000"},
				}}},
			},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	labtest.Until(t, "the pods run", func(ctx context.Context) error {
		deployment, err := client.AppsV1().Deployments("default").Get(ctx, "smoke", metav1.GetOptions{})
		if err == nil && deployment.Status.AvailableReplicas != replicas {
			err = fmt.Errorf("%d of %d are available", deployment.Status.AvailableReplicas, replicas)
		}
		return err
	})
	pods, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=smoke"})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		// A pod is available as soon as the process of its container has started.
		labtest.Until(t, "the log of "+pod.Name+" is complete", func(ctx context.Context) error {
			log, err := client.CoreV1().Pods("default").GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
			if want := "hello from " + pod.Name + "\nat 127.0.0.1\n"; err == nil && string(log) != want {
				err = fmt.Errorf("it is %q; want %q", log, want)
			}
			return err
		})
	}
}
