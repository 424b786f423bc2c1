package controlplane

import (
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/supervise"
)

// The names of the components' processes, after a cluster's prefix.
const (
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
)

// MastersGroup has all rights.
const MastersGroup = "system:masters"

const (
	issuer       = "https://kubernetes.default.svc"
	serviceRange = "10.0.0.0/24"
	serviceIP    = "10.0.0.1" // of the Service kubernetes, the first of the range
)

// Ports of a cluster's components.
type Ports struct {
	APIServer, ControllerManager, Scheduler int
}

// Cluster is one control plane.
type Cluster struct {
	name     string
	prefix   string
	programs Programs
	ports    Ports
	etcd     *Etcd
	// withoutScheduler is set where no pod is created without the name of its Node.
	withoutScheduler bool
	now              time.Time

	ca      *CA
	secrets folder
	files   struct {
		ca, frontProxyCA, serving, kubeletClient, frontProxyClient, tokens pairFiles

		controllerManager, scheduler, auditPolicy string
	}
}

// NewCluster creates the secrets of a cluster. The name is that of its folder for secrets and its
// prefix in etcd; prefix precedes the names of its processes and of its audit log.
func NewCluster(name, prefix string, programs Programs, ports Ports, etcd *Etcd, now time.Time) (*Cluster, error) {
	c := &Cluster{name: name, prefix: prefix, programs: programs, ports: ports, etcd: etcd, now: now}
	if err := c.writeSecrets(); err != nil {
		return nil, fmt.Errorf("cluster %q: %w", name, err)
	}
	return c, nil
}

func (c *Cluster) writeSecrets() error {
	var err error
	if c.secrets, err = newFolder(c.programs.Dir, "pki", c.name); err != nil {
		return err
	}
	if c.ca, err = NewCA("lab-"+c.name+"-ca", c.now); err != nil {
		return err
	}
	frontProxyCA, err := NewCA("lab-"+c.name+"-front-proxy-ca", c.now)
	if err != nil {
		return err
	}
	tokens, err := NewSigningKeys()
	if err != nil {
		return err
	}
	apiServer := []string{"127.0.0.1", "localhost", serviceIP, "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	for _, secret := range []struct {
		name    string
		files   *pairFiles
		ca      *CA
		subject Subject
	}{
		{"serving", &c.files.serving, c.ca, Subject{User: APIServer, Hosts: apiServer}},
		{"kubelet-client", &c.files.kubeletClient, c.ca, Subject{User: "kube-apiserver-kubelet-client", Groups: []string{MastersGroup}}},
		{"front-proxy-client", &c.files.frontProxyClient, frontProxyCA, Subject{User: "front-proxy-client"}},
	} {
		pair, err := secret.ca.Issue(secret.subject, c.now)
		if err != nil {
			return err
		}
		if *secret.files, err = c.secrets.writePair(secret.name, pair); err != nil {
			return err
		}
	}
	if c.files.ca, err = c.secrets.writePair("ca", c.ca.Pair); err != nil {
		return err
	}
	if c.files.frontProxyCA, err = c.secrets.writePair("front-proxy-ca", frontProxyCA.Pair); err != nil {
		return err
	}
	if c.files.tokens, err = c.secrets.writePair("service-account", tokens); err != nil {
		return err
	}
	if c.files.auditPolicy, err = c.secrets.write("audit-policy.yaml", auditPolicy); err != nil {
		return err
	}
	return c.writeUsers()
}

func (c *Cluster) writeUsers() error {
	for name, path := range map[string]*string{ControllerManager: &c.files.controllerManager, Scheduler: &c.files.scheduler} {
		kubeconfig, err := c.Kubeconfig(Subject{User: "system:" + name})
		if err != nil {
			return err
		}
		if *path, err = c.secrets.write(name+".kubeconfig", kubeconfig); err != nil {
			return err
		}
	}
	return nil
}

// ProcessName is the name of the process of one of its components.
func (c *Cluster) ProcessName(component string) string { return c.prefix + component }

// Server is the URL of its API server.
func (c *Cluster) Server() string { return address(c.ports.APIServer) }

// CA is the certificate of its authority, in PEM.
func (c *Cluster) CA() []byte { return c.ca.Cert }

// AuditLog is the path of its audit log.
func (c *Cluster) AuditLog() string { return filepath.Join(c.programs.Dir, c.prefix+"audit.log") }

// Kubeconfig returns a kubeconfig for a new user.
func (c *Cluster) Kubeconfig(user Subject) ([]byte, error) {
	return c.KubeconfigVia(c.Server(), user)
}

// KubeconfigVia is Kubeconfig for another URL of the API server, that of a proxy on the loopback
// interface.
func (c *Cluster) KubeconfigVia(server string, user Subject) ([]byte, error) {
	pair, err := c.ca.Issue(user, c.now)
	if err != nil {
		return nil, err
	}
	return Kubeconfig(server, c.ca.Cert, pair)
}

// Admin returns a client of the API server with all rights.
func (c *Cluster) Admin() (*Client, error) { return c.admin(c.ports.APIServer) }

// Probe creates a client for the readiness of a component, and returns the path of its probe.
func (c *Cluster) Probe(component string) (client *Client, path string, err error) {
	port, path := c.ports.APIServer, "/readyz"
	switch component {
	case ControllerManager:
		port, path = c.ports.ControllerManager, "/healthz"
	case Scheduler:
		port = c.ports.Scheduler
	}
	client, err = c.admin(port)
	return client, path, err
}

func (c *Cluster) admin(port int) (*Client, error) {
	pair, err := c.ca.Issue(Subject{User: "lab-launcher", Groups: []string{MastersGroup}}, c.now)
	if err != nil {
		return nil, err
	}
	return NewClient(address(port), c.ca.Cert, pair)
}

func address(port int) string { return "https://127.0.0.1:" + strconv.Itoa(port) }

// OmitScheduler has the cluster run without a scheduler.
func (c *Cluster) OmitScheduler() { c.withoutScheduler = true }

// Components returns the names of the components, the API server first.
func (c *Cluster) Components() []string {
	if c.withoutScheduler {
		return []string{APIServer, ControllerManager}
	}
	return []string{APIServer, ControllerManager, Scheduler}
}

// Specs returns how to start the Components.
func (c *Cluster) Specs() []supervise.Spec {
	all := []supervise.Spec{c.apiServer(), c.controllerManager()}
	if !c.withoutScheduler {
		all = append(all, c.scheduler())
	}
	return all
}
