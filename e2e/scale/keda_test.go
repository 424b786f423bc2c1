//go:build e2e

package scale

import (
	"context"
	_ "embed"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// keda is the namespace of KEDA.
const keda = "keda"

//go:embed testdata/adapter.yaml
var adapterManifest string

// startKEDA starts KEDA's operator and its metrics adapter as processes, with the access of their
// ServiceAccount, and waits until the API server has found the adapter.
func (s *scene) startKEDA() {
	s.t.Helper()
	bin, err := harness.Bin()
	if err != nil {
		s.t.Fatal(err)
	}
	// Its definition of ScaledJob is too large for the annotation of an apply by the client.
	if _, err := s.lab.Kubectl(s.ctx, "apply", "--server-side", "-f", filepath.Join(bin, "keda", "install.yaml")); err != nil {
		s.t.Fatal(err)
	}
	port, service := harness.FreePort(s.ctx, s.t), "127.0.0.1:"+harness.FreePort(s.ctx, s.t)
	s.apply([]byte(strings.ReplaceAll(adapterManifest, "PORT", port)))
	kubeconfig, certs := s.kubeconfigOf(keda, "keda-operator"), filepath.Join(s.dir, "certs")

	operator := func() *exec.Cmd {
		cmd := s.command("keda/operator", "--enable-cert-rotation", "--enable-webhook-patching=false", "--cert-dir="+certs,
			"--metrics-service-bind-address="+service, "--enable-prometheus-metrics=false", "--health-probe-bind-address=0")
		return inKEDA(cmd, kubeconfig)
	}
	// It ends after it has created its certificates, so that its kubelet mounts them.
	s.run(operator())
	s.mount(certs)
	s.start(operator())

	s.start(inKEDA(s.command("keda/adapter", "--secure-port="+port, "--bind-address=127.0.0.1", "--port=0", "--cert-dir="+certs,
		"--client-ca-file="+certs+"/ca.crt", "--tls-cert-file="+certs+"/tls.crt", "--tls-private-key-file="+certs+"/tls.key",
		"--lister-kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--metrics-service-address="+service, "--metrics-service-grpc-authority=keda-operator."+keda+".svc"), kubeconfig))
	err = harness.EventuallyEvery(s.ctx, sampleTime, "the API server serves external metrics", func(ctx context.Context) error {
		_, err := s.lab.Kubectl(ctx, "get", "--raw", "/apis/external.metrics.k8s.io/v1beta1")
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// inKEDA gives a command the environment of KEDA's Deployments.
func inKEDA(cmd *exec.Cmd, kubeconfig string) *exec.Cmd {
	cmd.Env = append(cmd.Env, "KUBECONFIG="+kubeconfig, "POD_NAMESPACE="+keda, "KEDA_CLUSTER_OBJECT_NAMESPACE="+keda, "WATCH_NAMESPACE=")
	return cmd
}

// mount writes KEDA's certificates to a folder, as a kubelet does.
func (s *scene) mount(folder string) {
	s.t.Helper()
	secret, err := s.lab.Control.CoreV1().Secrets(keda).Get(s.ctx, "kedaorg-certs", metav1.GetOptions{})
	if err == nil {
		err = os.MkdirAll(folder, 0o700)
	}
	for file, content := range secret.Data {
		err = errors.Join(err, os.WriteFile(filepath.Join(folder, file), content, 0o600))
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// kubeconfigOf writes a kubeconfig with the access of a ServiceAccount, and returns its path.
func (s *scene) kubeconfigOf(namespace, account string) string {
	s.t.Helper()
	config, err := clientcmd.LoadFromFile(s.kubeconfig())
	if err != nil {
		s.t.Fatal(err)
	}
	token := s.token(namespace, account)
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	}
	file := filepath.Join(s.dir, account+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		s.t.Fatal(err)
	}
	return file
}
