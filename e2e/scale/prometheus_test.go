//go:build e2e

package scale

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// metricsPort is the chart's.
const metricsPort = "10258"

//go:embed testdata/prometheus.yaml
var prometheusManifest []byte

// configuration scrapes more often than an operator would, so that a run is short.
const configuration = `global: {scrape_interval: 2s}
scrape_configs:
- job_name: fleet
  scheme: https
  tls_config: {insecure_skip_verify: true}
  authorization: {credentials_file: %s}
  file_sd_configs: [{files: [%s], refresh_interval: 2s}]
`

// startPrometheus starts a Prometheus with a token that the fleet accepts for its metrics.
func (s *scene) startPrometheus() *harness.Prometheus {
	s.t.Helper()
	s.apply(prometheusManifest)
	token, targets, file := filepath.Join(s.dir, "prometheus.token"), filepath.Join(s.dir,
		"targets.json"), filepath.Join(s.dir, "prometheus.yaml")
	err := errors.Join(
		os.WriteFile(token, []byte(s.token("monitoring", "prometheus")), 0o600),
		os.WriteFile(file, fmt.Appendf(nil, configuration, token, targets), 0o600),
		s.discover(s.ctx, targets),
	)
	if err != nil {
		s.t.Fatal(err)
	}
	address := "127.0.0.1:" + harness.FreePort(s.ctx, s.t)
	s.start(s.command("prometheus", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(s.dir, "tsdb"),
		"--web.listen-address="+address))
	s.inBackground(func(ctx context.Context) error {
		return every(ctx, func() error { return s.discover(ctx, targets) })
	})
	return &harness.Prometheus{URL: "http://" + address}
}

// discover writes the fleet's pods to a file, with the labels that the chart's ServiceMonitor leads
// to. It stands for discovery through the API server, which this Prometheus is built without.
func (s *scene) discover(ctx context.Context, file string) error {
	type group struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	pods, err := s.lab.Control.CoreV1().Pods(fleet).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the fleet's pods: %w", err)
	}
	groups := []group{}
	for _, pod := range pods.Items {
		if pod.Status.PodIP != "" {
			groups = append(groups, group{
				Targets: []string{net.JoinHostPort(pod.Status.PodIP, metricsPort)},
				Labels:  map[string]string{"namespace": fleet, "service": "fleet", "pod": pod.Name},
			})
		}
	}
	text, err := json.Marshal(groups)
	if err != nil {
		return fmt.Errorf("write the targets of Prometheus: %w", err)
	}
	// Renamed, because Prometheus may read at any time.
	return errors.Join(os.WriteFile(file+".new", text, 0o600), os.Rename(file+".new", file))
}
