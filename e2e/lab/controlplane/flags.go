package controlplane

import (
	_ "embed"
	"path/filepath"
	"strconv"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/supervise"
)

//go:embed audit-policy.yaml
var auditPolicy []byte

func (c *Cluster) apiServer() supervise.Spec {
	f := c.files
	return c.programs.spec(c.ProcessName(APIServer), APIServer,
		"--etcd-servers="+c.etcd.url, "--etcd-prefix=/"+c.name,
		"--etcd-cafile="+c.etcd.ca, "--etcd-certfile="+c.etcd.client.cert, "--etcd-keyfile="+c.etcd.client.key,

		"--bind-address=127.0.0.1", "--secure-port="+strconv.Itoa(c.ports.APIServer),
		// A Service must not have a loopback address as endpoint, so it cannot have one.
		"--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none", "--service-cluster-ip-range="+serviceRange,
		"--tls-cert-file="+f.serving.cert, "--tls-private-key-file="+f.serving.key,

		"--client-ca-file="+f.ca.cert, "--enable-bootstrap-token-auth",
		"--service-account-issuer="+issuer, "--service-account-key-file="+f.tokens.cert, "--service-account-signing-key-file="+f.tokens.key,
		"--requestheader-client-ca-file="+f.frontProxyCA.cert, "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file="+f.frontProxyClient.cert, "--proxy-client-key-file="+f.frontProxyClient.key,
		"--kubelet-client-certificate="+f.kubeletClient.cert, "--kubelet-client-key="+f.kubeletClient.key,
		"--kubelet-preferred-address-types=InternalIP",

		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged",
		"--audit-policy-file="+f.auditPolicy, "--audit-log-path="+c.AuditLog(),
		"--audit-log-maxsize=100000", // MB; so that the log is one file.
		"--profiling=false",
	)
}

func (c *Cluster) controllerManager() supervise.Spec {
	f := c.files
	return c.programs.spec(c.ProcessName(ControllerManager), ControllerManager,
		append(c.loopbackServer(f.controllerManager, c.ports.ControllerManager),
			"--use-service-account-credentials", "--root-ca-file="+f.ca.cert, "--service-account-private-key-file="+f.tokens.key,
			"--cluster-signing-cert-file="+f.ca.cert, "--cluster-signing-key-file="+f.ca.key,
			"--controllers=*,bootstrapsigner,tokencleaner",
			"--flex-volume-plugin-dir="+filepath.Join(c.programs.Dir, "flexvolumes"), // Its default is outside of the lab.
		)...)
}

func (c *Cluster) scheduler() supervise.Spec {
	return c.programs.spec(c.ProcessName(Scheduler), Scheduler, c.loopbackServer(c.files.scheduler, c.ports.Scheduler)...)
}

// loopbackServer has the flags that the controller manager and the scheduler share.
func (c *Cluster) loopbackServer(kubeconfig string, port int) []string {
	return []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + c.files.serving.cert, "--tls-private-key-file=" + c.files.serving.key,
		"--client-ca-file=" + c.files.ca.cert, "--requestheader-client-ca-file=" + c.files.frontProxyCA.cert,
		"--leader-elect=false",
		// With the defaults the controller manager alone takes 8 seconds to start.
		"--kube-api-qps=1000", "--kube-api-burst=2000",
		"--profiling=false",
	}
}
