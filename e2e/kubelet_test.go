//go:build e2e

package e2e

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

const realKubelet = `{"boot":"kubelet"}`

// kubeletsWork says whether this machine allows real kubelets. Where they are required, that they do not is a failure.
func kubeletsWork(t *testing.T) bool {
	t.Helper()
	bin, err := harness.Bin()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "lab"), "vm", "--check").CombinedOutput()
	if err == nil {
		return true
	}
	if os.Getenv("LAB_REQUIRE_KUBELET") == "1" {
		t.Fatalf("real kubelets cannot run here: %s", out)
	}
	t.Logf("real kubelets cannot run here: %s", out)
	return false
}

// TestRealKubelet has a VM boot a real kubelet, which joins through TLS bootstrap and runs a pod.
func TestRealKubelet(t *testing.T) {
	t.Parallel()
	if !kubeletsWork(t) {
		t.Skip("the lab boots simulated Nodes only")
	}
	s := newSpace(t, shared(t), "kubelet", realKubelet)
	name := s.name + "-vm"
	s.createMachine(name)
	s.running("", 1)
	vm := s.joined()[name]
	s.noTokens()
	s.bootstrapped(name)

	s.podRuns(name)
	before := family(processes(t), "/"+vm)
	if len(before) < 3 { // the VM, its kubelet, the pod
		t.Fatalf("VM %s has processes %v", vm, before)
	}
	s.remove("machines", name)
	s.gone()
	s.eventually("all processes of the VM have ended", func(context.Context) error {
		if left := living(t, before); len(left) > 0 {
			return fmt.Errorf("%d live:\n%s", len(left), strings.Join(left, "\n"))
		}
		return nil
	})
}

// bootstrapped makes sure that the Node's kubelet has its certificate by a request with a bootstrap token, which was
// approved and signed.
func (s *space) bootstrapped(node string) {
	s.Helper()
	requests, err := s.lab.Target.CertificatesV1().CertificateSigningRequests().List(s.Context(), metav1.ListOptions{})
	s.must(err)
	for _, r := range requests.Items {
		block, _ := pem.Decode(r.Spec.Request)
		if block == nil {
			s.Fatalf("%s holds no PEM", r.Name)
		}
		request, err := x509.ParseCertificateRequest(block.Bytes)
		s.must(err)
		if request.Subject.CommonName == "system:node:"+node && strings.HasPrefix(r.Spec.Username, "system:bootstrap:") &&
			r.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName && len(r.Status.Certificate) > 0 {
			return
		}
	}
	s.Errorf("none of %d certificate requests has made a bootstrap token's bearer Node %s", len(requests.Items), node)
}

// podRuns has the scheduler put a pod on a Node, and reads what it says.
func (s *space) podRuns(node string) {
	s.Helper()
	core := s.lab.Target.CoreV1()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	if _, err := core.Namespaces().Create(s.Context(), namespace, metav1.CreateOptions{}); err == nil {
		s.Cleanup(func() {
			err := core.Namespaces().Delete(context.WithoutCancel(s.Context()), s.name, metav1.DeleteOptions{})
			if err != nil {
				s.Error(err)
			}
		})
	} else if !apierrors.IsAlreadyExists(err) { // it does when the target cluster is the control cluster
		s.Fatal(err)
	}
	s.eventually("pods can be made", func(ctx context.Context) error {
		_, err := core.ServiceAccounts(s.name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "hello"},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: node},
			Containers: []corev1.Container{{
				Name: "hello", Image: "none", Command: []string{"sh", "-c", `echo "hello from $(hostname)"; exec sleep 100000`},
			}},
		},
	}
	_, err := core.Pods(s.name).Create(s.Context(), pod, metav1.CreateOptions{})
	s.must(err)
	s.eventually("the pod runs", func(ctx context.Context) error {
		pod, err := core.Pods(s.name).Get(ctx, "hello", metav1.GetOptions{})
		if err == nil && (pod.Status.Phase != corev1.PodRunning || pod.Spec.NodeName != node) {
			err = fmt.Errorf("phase %s on Node %q: %v", pod.Status.Phase, pod.Spec.NodeName, pod.Status.Conditions)
		}
		return err
	})
	s.eventually("the pod's log can be read", func(ctx context.Context) error {
		said, err := core.Pods(s.name).GetLogs("hello", &corev1.PodLogOptions{}).DoRaw(ctx)
		if err == nil && !strings.HasPrefix(string(said), "hello from ") {
			err = errors.New("the pod said " + string(said))
		}
		return err
	})
}
