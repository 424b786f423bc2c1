//go:build e2e

package scale

import (
	"bytes"
	"context"
	_ "embed"
	"os/exec"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// metric is the name under which the adapter serves the load.
const metric = "mcf-needed-replicas"

//go:embed testdata/adapter.yaml
var adapterManifest string

// query returns the query of the load, as the chart has it for KEDA.
func (s *scene) query() string {
	s.t.Helper()
	var rendered, complaint bytes.Buffer
	helm := s.helm("template", "--show-only", "templates/autoscaling.yaml", "--set", "autoscaling.externalMetric=")
	helm.Stdout, helm.Stderr = &rendered, &complaint
	if err := helm.Run(); err != nil {
		s.t.Fatalf("%s: %v\n%s", helm, err, &complaint)
	}
	var object struct {
		Spec struct {
			Triggers []struct {
				Metadata struct {
					Query string `json:"query"`
				} `json:"metadata"`
			} `json:"triggers"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(rendered.Bytes(), &object); err != nil {
		s.t.Fatal(err)
	}
	if len(object.Spec.Triggers) != 1 {
		s.t.Fatalf("the ScaledObject has %d triggers, want 1", len(object.Spec.Triggers))
	}
	return object.Spec.Triggers[0].Metadata.Query
}

// helm returns the command that installs or renders the fleet.
func (s *scene) helm(verb string, args ...string) *exec.Cmd {
	s.t.Helper()
	repository, err := harness.Repository()
	if err != nil {
		s.t.Fatal(err)
	}
	args = append([]string{
		verb, "fleet", filepath.Join(repository, "charts/machine-controller-fleet"), "--namespace", fleet,
		"--values", filepath.Join(s.lab.Dir, "values.yaml"), "--values", filepath.Join(repository, "e2e/scale/testdata/values.yaml"),
		"--set", "autoscaling.prometheus.serverAddress=" + s.prom.url, "--set", "autoscaling.externalMetric=" + metric,
	}, args...)
	helm := s.command("helm", args...)
	helm.Env = append(helm.Env, "KUBECONFIG="+s.kubeconfig(), "HELM_CACHE_HOME="+s.dir, "HELM_CONFIG_HOME="+s.dir, "HELM_DATA_HOME="+s.dir)
	return helm
}

// startAdapter serves the query as an external metric, and waits until the API server has found it.
func (s *scene) startAdapter(query string) {
	s.t.Helper()
	kubeconfig, port := s.kubeconfig(), harness.FreePort(s.ctx, s.t)
	s.apply([]byte(strings.ReplaceAll(adapterManifest, "PORT", port)))
	s.start(s.command("metricsadapter", "--secure-port="+port, "--bind-address=127.0.0.1", "--cert-dir="+s.dir,
		"--lister-kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--prometheus="+s.prom.url, "--metric="+metric+"="+query))
	err := harness.EventuallyEvery(s.ctx, sampleTime, "the API server serves external metrics", func(ctx context.Context) error {
		_, err := s.lab.Kubectl(ctx, "get", "--raw", "/apis/external.metrics.k8s.io/v1beta1")
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
}
