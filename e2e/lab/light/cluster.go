package light

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

const (
	// historyFor is how long a watch can begin at a revision, and trimEvery how often the rest is
	// removed.
	historyFor = 5 * time.Minute
	trimEvery  = time.Minute
	// maxBody is the maximum size of a request.
	maxBody = 3 << 20
)

// Config is the configuration of a Cluster.
type Config struct {
	Name string `json:"name"`
	// Listen is the address of the API server.
	Listen string `json:"listen"`
	// CA is the certificate of the authority whose client certificates are accepted. Cert and Key are
	// the certificate of the API server. All are PEM.
	CA, Cert, Key []byte
}

// Cluster is a light cluster. New returns one.
type Cluster struct {
	name    string
	clock   clock.WithTicker
	log     *slog.Logger
	address string
	tls     *tls.Config

	mu      sync.Mutex
	server  *apiserver.Server // by api
	tokens  map[string]token  // of service accounts
	fault   Fault
	changed chan struct{}    // closed when the fault changes
	usage   map[string]Usage // by user
}

// token is the token of a service account, which is valid while a Secret exists.
type token struct {
	namespace, account string
	secret             types.NamespacedName
	secretUID          types.UID
}

// New returns a cluster with the Namespaces that every cluster has. Errors: certificates that
// cannot be parsed.
func New(cfg Config, clk clock.WithTicker, log *slog.Logger) (*Cluster, error) {
	pair, err := tls.X509KeyPair(cfg.Cert, cfg.Key)
	if err != nil {
		return nil, fmt.Errorf("light cluster %s: the certificate of its API server: %w", cfg.Name, err)
	}
	authority := x509.NewCertPool()
	if !authority.AppendCertsFromPEM(cfg.CA) {
		return nil, fmt.Errorf("light cluster %s: %w", cfg.Name, errors.New("expected the certificate of its CA in PEM, got something else"))
	}
	c := &Cluster{
		name:    cfg.Name,
		clock:   clk,
		log:     log,
		address: cfg.Listen,
		usage:   map[string]Usage{},
		changed: make(chan struct{}),
		tls: &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: authority,
		},
	}
	c.Replace()
	return c, nil
}

// Replace replaces the cluster by another one, which is empty, behind the same address, with the
// same CA. Watches that are open stay at the earlier one until their connections end.
func (c *Cluster) Replace() {
	other := apiserver.New(uuid.NewString()[:8], c.clock.Now)
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease} {
		apiserver.Add(other, &corev1.Namespace{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
		})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server, c.tokens = other, map[string]token{}
}

// api returns the server in memory.
func (c *Cluster) api() *apiserver.Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server
}

// Run serves the cluster until ctx ends. Errors: it cannot listen.
func (c *Cluster) Run(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.address)
	if err != nil {
		return fmt.Errorf("light cluster %s: %w", c.name, err)
	}
	server := &http.Server{
		Handler: c, TLSConfig: c.tls, ReadHeaderTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(c.log.Handler(), slog.LevelDebug), // such as handshakes that a client ended
	}
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(listener, "", "") }()
	ticker := c.clock.NewTicker(trimEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			err := server.Close()
			if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
				err = errors.Join(err, ended)
			}
			return err
		case err := <-served:
			return fmt.Errorf("light cluster %s: %w", c.name, err)
		case <-ticker.C():
			c.api().Trim(historyFor)
			c.collect()
		}
	}
}

// collect removes the Leases and pods of Nodes that do not exist.
func (c *Cluster) collect() {
	for _, o := range c.api().List("leases") {
		if o.GetNamespace() == corev1.NamespaceNodeLease && c.api().Get("nodes", "", o.GetName()) == nil {
			c.api().Remove("leases", o.GetNamespace(), o.GetName())
		}
	}
	for _, o := range c.api().List("pods") {
		node, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName")
		if node != "" && c.api().Get("nodes", "", node) == nil {
			c.api().Remove("pods", o.GetNamespace(), o.GetName())
		}
	}
}
