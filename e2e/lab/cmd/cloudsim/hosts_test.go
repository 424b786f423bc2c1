package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/guest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/controlplane"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/labtest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/light"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// nothing is a cloud that ignores what its VMs report.
type nothing struct{}

func (nothing) Joined(string, string)       {}
func (nothing) Console(string, string)      {}
func (nothing) Died(string, string)         {}
func (nothing) IsOff(string)                {}
func (nothing) Settings() cloudapi.Settings { return cloudapi.Settings{} }

// startLight starts a light cluster with a bootstrap token, and writes its kubeconfig to a folder.
// It returns its URL and a client.
func startLight(t *testing.T, name, folder, tokenID, tokenSecret string) (url string, client kubernetes.Interface) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	now := time.Now()
	ca, err1 := controlplane.NewCA(name, now)
	serving, err2 := ca.Issue(controlplane.Subject{User: name, Hosts: []string{"127.0.0.1"}}, now)
	user, err3 := ca.Issue(controlplane.Subject{User: "cloudsim", Groups: []string{controlplane.MastersGroup}}, now)
	kubeconfig, err4 := controlplane.Kubeconfig("https://"+address, ca.Cert, user)
	c, err5 := light.New(light.Config{Name: name, Listen: address, CA: ca.Cert, Cert: serving.Cert, Key: serving.Key}, clock.RealClock{},
		slog.New(slog.DiscardHandler))
	file := filepath.Join(folder, name+".kubeconfig")
	err6 := os.WriteFile(file, kubeconfig, 0o600)
	config, err7 := clientcmd.BuildConfigFromFlags("", file)
	if err := errors.Join(listener.Close(), err1, err2, err3, err4, err5, err6, err7); err != nil {
		t.Fatal(err)
	}
	inBackground(t, c.Run)
	if client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	labtest.Until(t, name, func(ctx context.Context) error {
		_, err := client.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + tokenID}, Type: corev1.SecretTypeBootstrapToken,
			Data: map[string][]byte{
				"token-id": []byte(tokenID), "token-secret": []byte(tokenSecret), "usage-bootstrap-authentication": []byte("true"),
			},
		}, metav1.CreateOptions{})
		return err
	})
	return "https://" + address, client
}

// inBackground runs f until the test ends.
func inBackground(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestVMsJoinTheClusterOfTheirUserData(t *testing.T) {
	folder := t.TempDir()
	one, inOne := startLight(t, "one", folder, "aaaaaa", "0123456789abcdef")
	_, inOther := startLight(t, "other", folder, "bbbbbb", "0123456789abcdef")
	host, err := simulate(options{clusters: folder}, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	inBackground(t, func(ctx context.Context) error { return host.Run(ctx, nothing{}) })
	host.PowerOn(guest.VM{ID: "i-1", Name: "stranger", Server: one, BootstrapToken: "bbbbbb.0123456789abcdef", MemoryMiB: 1024, CPU: 1})
	host.PowerOn(guest.VM{ID: "i-2", Name: "member", Server: one, BootstrapToken: "aaaaaa.0123456789abcdef", MemoryMiB: 1024, CPU: 1})
	labtest.Until(t, "the Node of the VM", func(ctx context.Context) error {
		_, err := inOne.CoreV1().Nodes().Get(ctx, "member", metav1.GetOptions{})
		return err
	})
	for name, client := range map[string]kubernetes.Interface{"one": inOne, "other": inOther} {
		nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if want := map[string]int{"one": 1, "other": 0}[name]; err != nil || len(nodes.Items) != want {
			t.Errorf("cluster %s: expected %d Nodes, got %v, %v", name, want, nodes, err)
		}
	}
}
