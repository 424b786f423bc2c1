package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/kubeclient"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
)

const (
	rightsForReplicas = "create pods/portforward in the fleet's namespace (role …:operator of the chart), and get /metrics (role " +
		"…:metrics-reader or …:debug-reader) with a bearer token: a kubeconfig with a client certificate only needs --token"
	// metricsPort is the port of pods of the chart.
	metricsPort = 10258
	// mostMetrics is how many bytes of an answer are read.
	mostMetrics = 32 << 20
	// replicaTimeout is how long a replica may take to answer.
	replicaTimeout = 10 * time.Second
)

// replicaSource is where replicas are reached.
type replicaSource struct{ endpoints string }

func (f *replicaSource) declare(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.endpoints, "endpoints", "", "file with a JSON object that has the URL of each replica's metrics port, as the "+
		"endpoints.json of a lab; without it ports of pods are forwarded")
}

// metrics reads the metrics of the replicas that live, twice with the interval in between if that
// is not 0. What it cannot read is missing in the snapshot.
func (p *program) metrics(ctx context.Context, s *view.Snapshot, from replicaSource, interval time.Duration) map[string]view.Metrics {
	all := map[string]view.Metrics{}
	connection, err := p.replicas(ctx, from)
	if err != nil {
		s.Missing = append(s.Missing, view.Missing{What: "Metrics", Why: err.Error()})
		return all
	}
	defer connection.close()
	names := living(*s)
	begun := p.now()
	for name, content := range connection.scrape(ctx, s, names) {
		all[name] = view.ReadMetrics(content)
	}
	if interval == 0 || len(all) == 0 {
		return all
	}
	select {
	case <-ctx.Done():
		return all
	case <-p.clock.After(interval):
	}
	for name, before := range all {
		if content, err := connection.get(ctx, name, "/metrics"); err == nil {
			all[name] = view.ReadMetrics(content).Since(before, p.now().Sub(begun))
		}
	}
	return all
}

// living returns the names of the replicas that live.
func living(s view.Snapshot) (names []string) {
	for _, r := range view.FleetOf(s).Replicas {
		if r.Lives {
			names = append(names, r.Name)
		}
	}
	return names
}

// scrape returns the metrics of replicas, which are text, by the names of these. What it cannot
// read is missing in the snapshot.
func (r *replicas) scrape(ctx context.Context, s *view.Snapshot, names []string) map[string]string {
	all := map[string]string{}
	for _, name := range names {
		content, err := r.get(ctx, name, "/metrics")
		if err != nil {
			s.Missing = append(s.Missing, view.Missing{What: "Metrics of " + name, Why: err.Error(), Right: rightOf(err)})
			continue
		}
		all[name] = content
	}
	return all
}

// answerError is an answer of a replica other than 200.
type answerError struct {
	replica, path string
	code          int
}

func (e *answerError) Error() string {
	return fmt.Sprintf("replica %s answered %s with %d %s", e.replica, e.path, e.code, http.StatusText(e.code))
}

// rightOf returns the right that an answer of a replica needs; "" if that is not what is missing.
func rightOf(err error) string {
	answer, ok := errors.AsType[*answerError](err)
	switch {
	case ok && answer.code == http.StatusForbidden:
		return "get " + answer.path
	case ok && answer.code == http.StatusUnauthorized:
		return "get " + answer.path + " with a bearer token (--token)"
	}
	return ""
}

// replicas is a connection to the metrics ports of replicas.
type replicas struct {
	urls   map[string]string // by --endpoints
	config *rest.Config
	pods   rest.Interface
	spaces string // the namespace of the pods
	client *http.Client
	open   map[string]chan struct{} // the forwarded ports
}

func (p *program) replicas(_ context.Context, from replicaSource) (*replicas, error) {
	config, _, err := p.connect(p)
	if err != nil {
		return nil, err
	}
	r := &replicas{urls: map[string]string{}, config: config, spaces: p.fleetNamespace, open: map[string]chan struct{}{}}
	if from.endpoints != "" {
		content, err := os.ReadFile(from.endpoints)
		if err == nil {
			err = json.Unmarshal(content, &r.urls)
		}
		if err != nil {
			return nil, fmt.Errorf("--endpoints: expected a file with JSON such as {\"fleet-0\":\"http://127.0.0.1:1234\"}: %w", err)
		}
	}
	clients, err := kubeclient.New(config)
	if err != nil {
		return nil, err
	}
	r.pods = clients.CoreV1().RESTClient()
	// Only the credentials of the kubeconfig are sent. The certificate of a replica is mostly its own,
	// and is for no address: the port is forwarded by the API server, which is verified.
	c := rest.AnonymousClientConfig(config)
	c.TLSClientConfig = rest.TLSClientConfig{Insecure: true}
	c.BearerToken, c.BearerTokenFile = config.BearerToken, config.BearerTokenFile
	c.ExecProvider, c.AuthProvider = config.ExecProvider, config.AuthProvider
	c.WrapTransport = nil
	r.client, err = rest.HTTPClientFor(c)
	return r, err
}

// get returns what a replica answers.
func (r *replicas) get(ctx context.Context, replica, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	base, known := r.urls[replica]
	if !known {
		var err error
		if base, err = r.forward(ctx, replica); err != nil {
			return "", fmt.Errorf("forward the port of pod %s: %w; where replicas are no pods, --endpoints has to name a file with their addresses",
				replica, err)
		}
		r.urls[replica] = base
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
	if err != nil {
		return "", err
	}
	answer, err := r.client.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	content, err := io.ReadAll(io.LimitReader(answer.Body, mostMetrics))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = &answerError{replica, path, answer.StatusCode}
	}
	return string(content), err
}

// forward forwards a local port to that of a replica's pod, and returns its URL.
func (r *replicas) forward(ctx context.Context, pod string) (string, error) {
	target := r.pods.Post().Resource("pods").Namespace(r.spaces).Name(pod).SubResource("portforward").URL()
	dialer, err := r.dialer(target)
	if err != nil {
		return "", err
	}
	stop, ready, failed := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	ports := []string{fmt.Sprintf("0:%d", metricsPort)}
	f, err := portforward.NewOnAddressesForStreaming(dialer, []string{"127.0.0.1"}, ports, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return "", err
	}
	go func() { failed <- f.ForwardPorts() }()
	select {
	case err := <-failed:
		return "", err
	case <-ctx.Done():
		close(stop)
		return "", ctx.Err()
	case <-ready:
	}
	r.open[pod] = stop
	forwarded, err := f.GetPorts()
	if err != nil || len(forwarded) == 0 {
		return "", fmt.Errorf("the forwarded port is not known: %w", err)
	}
	return fmt.Sprintf("https://127.0.0.1:%d", forwarded[0].Local), nil
}

// dialer returns the connection for forwarded ports: a web socket, or SPDY with API servers that do
// not have that.
func (r *replicas) dialer(target *url.URL) (httpstream.Dialer, error) {
	socket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(target, r.config)
	if err != nil {
		return nil, err
	}
	transport, upgrader, err := spdy.RoundTripperFor(r.config)
	if err != nil {
		return nil, err
	}
	old := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, target)
	return portforward.NewFallbackDialerForStreaming(socket, old, func(error) bool { return true }), nil
}

// close ends the forwarded ports.
func (r *replicas) close() {
	for _, stop := range r.open {
		close(stop)
	}
}
