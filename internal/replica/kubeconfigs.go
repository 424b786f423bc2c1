package replica

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// InCluster as a value of --control-kubeconfig means the cluster that the process runs in.
const InCluster = "inClusterConfig"

// NoTarget as a value of --target-kubeconfig means that there is no target cluster.
const NoTarget = "none"

// Kubeconfigs are where a process finds its clusters.
type Kubeconfigs struct {
	// Control and Target are files. Control may be empty, which means Target, or InCluster; Target may
	// be empty, which means the cluster that the process runs in, or NoTarget.
	Control, Target string
	// QPS is how many requests a second are sent to each API server; 0 leaves the pace to the server.
	// Burst is how many may be sent at once beyond that.
	QPS   float64
	Burst int
}

// Clusters are the clusters of Kubeconfigs. Open returns them.
type Clusters struct {
	// Control and Target are the configurations of their clients; Target is nil when there is no
	// target cluster. Leases is that of the control cluster for Leases, with its own connections by
	// HTTP/1.1.
	Control, Target, Leases *rest.Config

	files []*kubeconfigFile
}

// Open reads the kubeconfigs of both clusters. Errors: kubeconfigs that cannot be read, by the
// flags that name them.
func (o Kubeconfigs) Open() (*Clusters, error) {
	if err := noticeDeadConnections(); err != nil {
		return nil, err
	}
	controlFlag, controlFile := "control-kubeconfig", o.Control
	if controlFile == "" {
		controlFlag, controlFile = "target-kubeconfig", o.Target
	}
	control, err := readKubeconfig(controlFlag, controlFile)
	if err != nil {
		return nil, err
	}
	c := &Clusters{files: []*kubeconfigFile{control}}
	if c.Control, err = control.config(o); err != nil {
		return nil, err
	}
	if c.Leases, err = control.config(o, "http/1.1"); err != nil {
		return nil, err
	}
	if o.Target == NoTarget {
		return c, nil
	}
	target, err := readKubeconfig("target-kubeconfig", o.Target)
	if err != nil {
		return nil, err
	}
	c.files = append(c.files, target)
	c.Target, err = target.config(o)
	return c, err
}

// reloadPeriod is the time between two reads of the kubeconfigs: changed credentials are used
// within 5 s.
const reloadPeriod = 2 * time.Second

// Reload has the clients use the credentials that are in the files, until ctx ends. Requests in
// flight are not interrupted.
func (c *Clusters) Reload(ctx context.Context, time clock.WithTicker) {
	ticker := time.NewTicker(reloadPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		for _, file := range c.files {
			file.reload(klog.FromContext(ctx))
		}
	}
}

// kubeconfigFile is a kubeconfig in a file, or what stands for one in a Pod.
type kubeconfigFile struct {
	flag, path string
	read       *kubeconfig
	transports []*followingTransport
	problem    string // that was logged last
}

// kubeconfig is the content of a file.
type kubeconfig struct {
	text   string
	config *rest.Config // without names of files
}

// readKubeconfig reads the kubeconfig that a flag names; an empty path means the cluster that the
// process runs in. Errors: one that cannot be read.
func readKubeconfig(flag, path string) (*kubeconfigFile, error) {
	f := &kubeconfigFile{flag: flag, path: path}
	read, err := f.readOnce()
	if err != nil {
		return nil, fmt.Errorf("--%s=%s: read the kubeconfig: %w", flag, path, err)
	}
	f.read = read
	return f, nil
}

// isPod reports whether the files are those that Kubernetes mounts into a Pod. client-go reads
// their tokens again.
func (f *kubeconfigFile) isPod() bool { return f.path == "" || f.path == InCluster }

// readOnce reads the file, and those that it names.
func (f *kubeconfigFile) readOnce() (*kubeconfig, error) {
	if f.isPod() {
		config, err := rest.InClusterConfig()
		return &kubeconfig{config: config}, err
	}
	text, err := os.ReadFile(f.path)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", f.path)
	if err != nil {
		return nil, err
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, err
	}
	config.CAFile, config.CertFile, config.KeyFile = "", "", ""
	if config.BearerTokenFile != "" {
		token, err := os.ReadFile(config.BearerTokenFile)
		if err != nil {
			return nil, err
		}
		config.BearerToken, config.BearerTokenFile = strings.TrimSpace(string(token)), ""
	}
	return &kubeconfig{text: string(text), config: config}, nil
}

// config returns a configuration for clients, whose credentials are those of the file. protocols
// are those of TLS; none means those of client-go. Errors: an invalid kubeconfig.
func (f *kubeconfigFile) config(o Kubeconfigs, protocols ...string) (*rest.Config, error) {
	config := rest.CopyConfig(f.read.config)
	if !f.isPod() {
		following := &followingTransport{protocols: protocols}
		if err := following.use(config); err != nil {
			return nil, fmt.Errorf("--%s=%s: %w", f.flag, f.path, err)
		}
		f.transports = append(f.transports, following)
		server, _, err := rest.DefaultServerUrlFor(config)
		if err != nil {
			return nil, fmt.Errorf("--%s=%s: %w", f.flag, f.path, err)
		}
		config = &rest.Config{Host: server.String(), Transport: following}
	}
	config.QPS, config.Burst = float32(o.QPS), o.Burst
	if o.QPS == 0 {
		config.QPS = -1 // no limit
	}
	return config, nil
}

// reload uses what the file contains now. What cannot be used is logged once, and what was read
// before stays in use.
func (f *kubeconfigFile) reload(log klog.Logger) {
	if f.isPod() {
		return
	}
	changed, err := f.update()
	switch {
	case err != nil && err.Error() != f.problem:
		log.Error(err, "Failed to read the kubeconfig; its earlier credentials stay in use", "flag", f.flag, "path", f.path)
	case changed:
		log.Info("Using the credentials of the changed kubeconfig", "flag", f.flag, "path", f.path)
	}
	f.problem = ""
	if err != nil {
		f.problem = err.Error()
	}
}

// update reports whether the file has changed, and uses it.
func (f *kubeconfigFile) update() (changed bool, err error) {
	read, err := f.readOnce()
	if err != nil {
		return false, err
	}
	before, after := f.read.config, read.config
	if read.text == f.read.text && before.BearerToken == after.BearerToken &&
		reflect.DeepEqual(before.TLSClientConfig, after.TLSClientConfig) {
		return false, nil
	}
	if before.Host != after.Host || before.APIPath != after.APIPath {
		return false, fmt.Errorf("expected the server %s as before, got %s; restart to use another one", before.Host, after.Host)
	}
	var errs []error
	for _, transport := range f.transports {
		errs = append(errs, transport.use(after))
	}
	if err := errors.Join(errs...); err != nil {
		return false, err
	}
	f.read = read
	return true, nil
}

// followingTransport is the http.RoundTripper of clients whose credentials change.
type followingTransport struct {
	protocols []string
	now       atomic.Pointer[http.RoundTripper]
}

// use has the next requests use the credentials of a configuration. Errors: invalid ones.
func (t *followingTransport) use(config *rest.Config) error {
	config = rest.CopyConfig(config)
	config.NextProtos = t.protocols
	next, err := rest.TransportFor(config)
	if err != nil {
		return err
	}
	if before := t.now.Swap(&next); before != nil {
		utilnet.CloseIdleConnectionsFor(*before)
	}
	return nil
}

// RoundTrip sends a request. Errors: those of the connection.
func (t *followingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	return (*t.now.Load()).RoundTrip(r)
}

// WrappedRoundTripper returns the transport below, through which client-go finds the connections to
// close.
func (t *followingTransport) WrappedRoundTripper() http.RoundTripper { return *t.now.Load() }
