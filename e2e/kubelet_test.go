//go:build e2e

package e2e

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

const realKubelet = `{"boot":"kubelet"}`

// TestRealKubelet: a VM boots a real kubelet, which joins through TLS bootstrap and runs a pod.
func TestRealKubelet(t *testing.T) {
	t.Parallel()
	if !harness.KubeletsWork(t) {
		t.Skip("the lab boots simulated Nodes only")
	}
	s := newSpace(t, shared(t), "kubelet", realKubelet)
	name := s.name + "-vm"
	position, err := s.lab.AuditEnd()
	s.must(err)
	s.createMachine(name)
	s.running("", 1)
	vm := s.joined()[name]
	s.noTokens()
	bootstrapped(s, name, position)

	podRuns(s, name)
	before := family(processes(t), "/"+vm)
	if len(before) < 3 { // the VM, its kubelet, the pod
		t.Fatalf("VM %s has processes %v", vm, before)
	}
	s.remove("machines", name)
	s.gone()
	s.eventually("all processes of the VM have ended", func(context.Context) error {
		if remaining := living(t, before); len(remaining) > 0 {
			return fmt.Errorf("%d live:\n%s", len(remaining), strings.Join(remaining, "\n"))
		}
		return nil
	})
}

// bootstrapped checks that the Node's kubelet has its certificate by a request with a bootstrap
// token that the fleet has created and deleted again, that the lab's approver has approved, and
// that Kubernetes itself has signed.
func bootstrapped(s *space, node string, since harness.AuditPosition) {
	s.Helper()
	request := certificateRequest(s, node)
	token, isToken := strings.CutPrefix(request.Spec.Username, "system:bootstrap:")
	if !isToken || request.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName || len(request.Status.Certificate) == 0 {
		s.Errorf("%s by %s, signer %s, certificate %q", request.Name, request.Spec.Username, request.Spec.SignerName, request.Status.Certificate)
	}
	requests, err := s.lab.Requests(since)
	s.must(err)
	const controller, csrs = "system:serviceaccount:kube-system:certificate-controller", "certificatesigningrequests"
	story := []struct{ user, verb, what string }{
		{harness.Fleet, "create", "secrets/bootstrap-token-" + token},
		{request.Spec.Username, "create", csrs}, // the API server gives it its name
		{"approver", "update", csrs + "/" + request.Name + "/approval"},
		{controller, "update", csrs + "/" + request.Name + "/status"},
		{"system:node:" + node, "create", "nodes/" + node},
		{harness.Fleet, "delete", "secrets/bootstrap-token-" + token},
	}
	for _, r := range requests {
		what := strings.TrimRight(r.Resource+"/"+r.Name+"/"+r.Subresource, "/")
		// A kubelet that gets its certificate cancels its open requests, which the audit log shows as an
		// error of the API server: they have taken effect nevertheless, or are repeated.
		refused := r.Code >= http.StatusBadRequest && r.Code < http.StatusInternalServerError
		if want := story[0]; r.User == want.user && r.Verb == want.verb && what == want.what && !refused {
			if story = story[1:]; len(story) == 0 {
				return
			}
		}
	}
	s.Errorf("Node %s was not created by the expected sequence of requests; missing, from here on: %+v", node, story)
}

// certificateRequest is that of a Node's kubelet.
func certificateRequest(s *space, node string) (found certificatesv1.CertificateSigningRequest) {
	s.Helper()
	all, err := s.lab.Target.CertificatesV1().CertificateSigningRequests().List(s.Context(), metav1.ListOptions{})
	s.must(err)
	for _, r := range all.Items {
		block, _ := pem.Decode(r.Spec.Request)
		if block == nil {
			s.Fatalf("%s holds no PEM", r.Name)
		}
		request, err := x509.ParseCertificateRequest(block.Bytes)
		s.must(err)
		if request.Subject.CommonName == "system:node:"+node {
			return r
		}
	}
	s.Fatalf("none of %d certificate requests is that of Node %s", len(all.Items), node)
	return found
}

// podRuns lets the scheduler bind a pod to a Node, and reads its log.
func podRuns(s *space, node string) {
	s.Helper()
	s.workload()
	core := s.lab.Target.CoreV1()
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
		output, err := core.Pods(s.name).GetLogs("hello", &corev1.PodLogOptions{}).DoRaw(ctx)
		if err == nil && !strings.HasPrefix(string(output), "hello from ") {
			err = errors.New("the log of the pod is " + string(output))
		}
		return err
	})
}
