package approver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machinefake "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/fake"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// request returns a request that a kubelet sends with the token abcdef.
func request(t *testing.T, change func(*x509.CertificateRequest)) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n-1", Organization: []string{"system:nodes"}}}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "csr-1"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Username: "system:bootstrap:abcdef", SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages:  []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
		},
	}
}

// inOrder are the facts of a VM that requests the certificate of its Node.
func inOrder(t *testing.T) facts {
	t.Helper()
	return facts{
		now: now, request: request(t, nil),
		token: &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "kube-system", Name: "bootstrap-token-abcdef",
				Annotations: map[string]string{v1alpha1.AnnotationMachineUID: "u", v1alpha1.AnnotationTokenOf: "tenant/m"},
			},
			Type: corev1.SecretTypeBootstrapToken, Data: map[string][]byte{"expiration": []byte("2026-01-02T04:04:05Z")},
		},
		machine: &v1alpha1.Machine{
			ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "m", UID: "u", Labels: map[string]string{v1alpha1.LabelNode: "n-1"}},
			Spec:       v1alpha1.MachineSpec{ProviderID: "cloud:///i-1"},
			Status:     v1alpha1.MachineStatus{CurrentStatus: v1alpha1.CurrentStatus{Phase: v1alpha1.MachinePending}},
		},
	}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	deleted := metav1.NewTime(now)
	asks := func(change func(*x509.CertificateRequest)) func(*facts) {
		return func(f *facts) { f.request = request(t, change) }
	}
	node := func(machine, providerID string) func(*facts) {
		return func(f *facts) {
			f.node = &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "n-1", Annotations: map[string]string{v1alpha1.AnnotationMachine: machine}},
				Spec:       corev1.NodeSpec{ProviderID: providerID},
			}
		}
	}
	phase := func(phase v1alpha1.MachinePhase) func(*facts) {
		return func(f *facts) { f.machine.Status.CurrentStatus.Phase = phase }
	}
	other := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "victim", Name: "m", UID: "v"}}
	for name, tc := range map[string]struct {
		change func(*facts)
		want   verdict
		why    string
	}{
		"in order":                   {func(*facts) {}, approve, "is that of the machine"},
		"its own Node is there":      {node("tenant/m/u", "cloud:///i-1"), approve, "is that of the machine"},
		"a Node bound to no machine": {node("", "cloud:///i-1"), wait, "bound to no machine"},
		"another's Node": {asks(func(r *x509.CertificateRequest) {
			r.Subject.CommonName = "system:node:victim"
		}), deny, `for Node "n-1", and the request for Node "victim"`},
		"no Node": {
			asks(func(r *x509.CertificateRequest) { r.Subject.CommonName = "admin" }), deny, "expected user system:node:",
		},
		"no name": {
			asks(func(r *x509.CertificateRequest) { r.Subject.CommonName = "system:node:" }), deny, "expected user system:node:",
		},
		"another group": {
			asks(func(r *x509.CertificateRequest) { r.Subject.Organization = []string{"system:masters"} }), deny, "in group system:nodes",
		},
		"one more group": {asks(func(r *x509.CertificateRequest) {
			r.Subject.Organization = []string{"system:nodes", "system:masters"}
		}), deny, "in group system:nodes"},
		"a host name": {
			asks(func(r *x509.CertificateRequest) { r.DNSNames = []string{"kubernetes.default"} }), deny, "no alternative names",
		},
		"a serving certificate": {
			func(f *facts) { f.request.Spec.Usages = append(f.request.Spec.Usages, certificatesv1.UsageServerAuth) }, deny, "no usages but",
		},
		"no request":                   {func(f *facts) { f.request.Spec.Request = []byte("x") }, deny, "expected one certificate request"},
		"the token does not exist":     {func(f *facts) { f.token = nil }, wait, "belongs to no machine"},
		"the token is an admin's":      {func(f *facts) { f.token.Annotations = nil }, wait, "belongs to no machine"},
		"the token has expired":        {func(f *facts) { f.now = now.Add(time.Hour) }, deny, "has expired"},
		"the token does not expire":    {func(f *facts) { f.token.Data = nil }, deny, "has expired"},
		"the machine is gone":          {func(f *facts) { f.machine = nil }, deny, "does not exist any more"},
		"the machine is another":       {func(f *facts) { f.machine.UID = "v" }, deny, "does not exist any more"},
		"the machine is being deleted": {func(f *facts) { f.machine.DeletionTimestamp = &deleted }, deny, "being deleted"},
		"the machine is being created": {phase(v1alpha1.MachineCrashLoopBackOff), approve, "is that of the machine"},
		"the machine has joined":       {phase(v1alpha1.MachineRunning), deny, "is Running"},
		"the machine is unhealthy":     {phase(v1alpha1.MachineUnknown), deny, "is Unknown"},
		"the machine has failed":       {phase(v1alpha1.MachineFailed), deny, "is Failed"},
		"the machine is updated":       {phase(v1alpha1.MachineInPlaceUpdating), deny, "is InPlaceUpdating"},
		"listed itself":                {func(f *facts) { f.others = []v1alpha1.Machine{*f.machine} }, approve, "is that of the machine"},
		"another names the Node":       {func(f *facts) { f.others = []v1alpha1.Machine{*f.machine, *other} }, wait, "Machine victim/m/v names"},
		"the VM is not recorded":       {func(f *facts) { f.machine.Labels = nil }, wait, "not recorded yet"},
		"the Node is another's":        {node("tenant/other/v", "cloud:///i-1"), deny, "that of machine tenant/other/v"},
		"the Node is another tenant's": {node("victim/m/u", "cloud:///i-1"), deny, "that of machine victim/m/u"},
		"the Node has another VM":      {node("tenant/m/u", "cloud:///i-2"), deny, "another VM"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := inOrder(t)
			tc.change(&f)
			if got, why := decide(f); got != tc.want || !strings.Contains(why, tc.why) {
				t.Errorf("verdict %d, %q; want %d, %q", got, why, tc.want, tc.why)
			}
		})
	}
}

func TestRequests(t *testing.T) {
	t.Parallel()
	named := func(namespace, node string) v1alpha1.Machine {
		return v1alpha1.Machine{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "m", UID: "v", Labels: map[string]string{v1alpha1.LabelNode: node}},
		}
	}
	for name, tc := range map[string]struct {
		change func(*facts)
		want   certificatesv1.RequestConditionType
	}{
		"of a Node that another names": {func(f *facts) { f.others = []v1alpha1.Machine{named("victim", "n-1")} }, ""},
		"next to other machines": {
			func(f *facts) { f.others = []v1alpha1.Machine{named("victim", "n-2")} }, certificatesv1.CertificateApproved,
		},
		"of its own Node":               {func(*facts) {}, certificatesv1.CertificateApproved},
		"of another's Node":             {func(f *facts) { f.machine.Labels[v1alpha1.LabelNode] = "n-2" }, certificatesv1.CertificateDenied},
		"of a VM that is being created": {func(f *facts) { f.machine.Labels = nil }, ""},
		"of a Node":                     {func(f *facts) { f.request.Spec.Username = "system:node:n-1" }, ""},
		"of another signer":             {func(f *facts) { f.request.Spec.SignerName = "example.org/x" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := inOrder(t)
			tc.change(&f)
			target := fake.NewClientset([]runtime.Object{f.request, f.token}...)
			machines := []runtime.Object{f.machine}
			for i := range f.others {
				machines = append(machines, &f.others[i])
			}
			cfg := Config{
				Target: target, Machines: machinefake.NewSimpleClientset(machines...), Clock: clocktesting.NewFakeClock(now),
				Log: slog.New(slog.DiscardHandler),
			}
			if err := cfg.look(t.Context(), f.request); err != nil {
				t.Fatal(err)
			}
			live, err := target.CertificatesV1().CertificateSigningRequests().Get(t.Context(), f.request.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var got certificatesv1.RequestConditionType
			for _, c := range live.Status.Conditions {
				got = c.Type
			}
			if got != tc.want {
				t.Errorf("the request is %q, want %q", got, tc.want)
			}
		})
	}
}

// A request that has to wait is decided when its VM is recorded, although nothing of the request
// changes.
func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := inOrder(t)
		node := f.machine.Labels
		f.machine.Labels, f.token.Data["expiration"] = nil, []byte(time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		target, machines := fake.NewClientset([]runtime.Object{f.request, f.token}...), machinefake.NewSimpleClientset(f.machine)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := Run(ctx, Config{
				Target: target, Machines: machines, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler),
			}); err != nil {
				t.Error(err)
			}
		})
		for _, want := range []int{0, 1} {
			time.Sleep(3 * retry)
			live, err := target.CertificatesV1().CertificateSigningRequests().Get(t.Context(), f.request.Name, metav1.GetOptions{})
			if err != nil || len(live.Status.Conditions) != want {
				t.Errorf("conditions %v, %v; want %d", live.Status.Conditions, err, want)
			}
			f.machine.Labels = node
			if _, err := machines.MachineV1alpha1().Machines("tenant").Update(t.Context(), f.machine, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		stop()
		running.Wait()
	})
}
