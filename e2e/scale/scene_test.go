//go:build e2e

package scale

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// metric is the name under which the adapter serves the load.
const metric = "mcf-needed-replicas"

//go:embed testdata/adapter.yaml
var adapterManifest string

// scene is a lab with everything that scales its fleet.
type scene struct {
	ctx    context.Context //nolint:containedctx // it ends with the test, and so does the scene
	t      *testing.T
	lab    *harness.Lab
	dir    string
	prom   *harness.Prometheus
	record record

	mu     sync.Mutex
	broken error // what the bridge or the record met
}

// newScene starts Prometheus, the adapter, the StatefulSet, the bridge, the record and the autoscaler, in this order.
func newScene(ctx context.Context, t *testing.T, lab *harness.Lab) *scene {
	t.Helper()
	s := &scene{ctx: ctx, t: t, lab: lab, dir: filepath.Join(lab.Dir, "scale")}
	if err := os.MkdirAll(s.dir, 0o750); err != nil {
		t.Fatal(err)
	}
	s.prom = harness.StartPrometheus(ctx, t, lab, 2*time.Second, "")
	query := s.query()
	s.startAdapter(query)

	s.apply(s.render("--show-only", "templates/statefulset.yaml"))
	if _, err := lab.Kubectl(ctx, "-n", fleet, "scale", "statefulset/fleet", "--replicas="+strconv.Itoa(atRest)); err != nil {
		t.Fatal(err)
	}
	s.waitPods(atRest)
	s.inBackground(s.bridge)
	s.apply(s.render("--show-only", "templates/autoscaling.yaml", "--set", "autoscaling.externalMetric="+metric))
	s.waitAutoscaler()
	s.record = record{begin: time.Now()}
	s.inBackground(func(ctx context.Context) error { return s.sample(ctx, query) })
	t.Cleanup(func() {
		if err := s.record.write(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// inBackground runs f until the end of the test.
func (s *scene) inBackground(f func(context.Context) error) {
	ctx, stop := context.WithCancel(s.ctx)
	var running sync.WaitGroup
	running.Go(func() {
		if err := f(ctx); err != nil && ctx.Err() == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.broken = errors.Join(s.broken, err)
		}
	})
	s.t.Cleanup(func() {
		stop()
		running.Wait()
	})
}

// failed returns what made a part of the scene end.
func (s *scene) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
}

// render renders parts of the chart.
func (s *scene) render(args ...string) []byte {
	s.t.Helper()
	bin, err := harness.Bin()
	if err != nil {
		s.t.Fatal(err)
	}
	repository, err := harness.Repository()
	if err != nil {
		s.t.Fatal(err)
	}
	args = append([]string{
		"template", "fleet", filepath.Join(repository, "charts/machine-controller-fleet"), "--namespace", fleet,
		"--values", filepath.Join(repository, "e2e/scale/testdata/values.yaml"), "--set", "autoscaling.prometheus.serverAddress=" + s.prom.URL,
	}, args...)
	var complaint bytes.Buffer
	helm := exec.CommandContext(s.ctx, filepath.Join(bin, "helm"), args...)
	helm.Stderr = &complaint
	rendered, err := helm.Output()
	if err != nil {
		s.t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, &complaint)
	}
	return rendered
}

// query returns the query of the load, as the chart has it for KEDA.
func (s *scene) query() string {
	s.t.Helper()
	var object struct {
		Spec struct {
			Triggers []struct {
				Metadata struct {
					Query string `json:"query"`
				} `json:"metadata"`
			} `json:"triggers"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(s.render("--show-only", "templates/autoscaling.yaml"), &object); err != nil {
		s.t.Fatal(err)
	}
	if len(object.Spec.Triggers) != 1 {
		s.t.Fatalf("the ScaledObject has %d triggers, want 1", len(object.Spec.Triggers))
	}
	return object.Spec.Triggers[0].Metadata.Query
}

// apply applies a manifest to the control cluster.
func (s *scene) apply(manifest []byte) {
	s.t.Helper()
	file := filepath.Join(s.dir, "manifest.yaml")
	if err := os.WriteFile(file, manifest, 0o600); err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.lab.Kubectl(s.ctx, "apply", "-f", file); err != nil {
		s.t.Fatal(err)
	}
}

// startAdapter serves the query as an external metric, and waits until the API server has found it.
func (s *scene) startAdapter(query string) {
	s.t.Helper()
	kubeconfig, port := filepath.Join(s.lab.Dir, "admin.kubeconfig"), harness.FreePort(s.ctx, s.t)
	harness.StartProgram(s.ctx, s.t, s.dir, "metricsadapter", "--secure-port="+port, "--bind-address=127.0.0.1", "--cert-dir="+s.dir,
		"--lister-kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--prometheus="+s.prom.URL, "--metric="+metric+"="+query)
	s.apply([]byte(strings.ReplaceAll(adapterManifest, "PORT", port)))
	err := harness.EventuallyEvery(s.ctx, sampleTime, "the API server serves external metrics", func(ctx context.Context) error {
		_, err := s.lab.Kubectl(ctx, "get", "--raw", "/apis/external.metrics.k8s.io/v1beta1/namespaces/"+fleet+"/"+metric)
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// pods returns how many pods the StatefulSet has that are not being deleted.
func (s *scene) pods(ctx context.Context) (n int, err error) {
	list, err := s.lab.Control.CoreV1().Pods(fleet).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("list the pods of the StatefulSet: %w", err)
	}
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			n++
		}
	}
	return n, nil
}

func (s *scene) waitPods(n int) {
	s.t.Helper()
	err := harness.EventuallyEvery(s.ctx, sampleTime, fmt.Sprintf("the StatefulSet has %d pods", n), func(ctx context.Context) error {
		got, err := s.pods(ctx)
		if err == nil && got != n {
			err = fmt.Errorf("it has %d", got)
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// bridge stands for the kubelets: it makes the lab run as many replicas as the StatefulSet has pods.
func (s *scene) bridge(ctx context.Context) error {
	running := atRest
	return every(ctx, func() error {
		wanted, err := s.pods(ctx)
		if err != nil || wanted == running || wanted == 0 {
			return err
		}
		if err := s.lab.Scale(ctx, wanted); err != nil {
			return err
		}
		running = wanted
		return s.prom.Scrape(ctx)
	})
}

// waitAutoscaler waits until the autoscaler has read the load.
func (s *scene) waitAutoscaler() {
	s.t.Helper()
	err := harness.EventuallyEvery(s.ctx, sampleTime, "the autoscaler reads the load", func(ctx context.Context) error {
		hpa, err := s.lab.Control.AutoscalingV2().HorizontalPodAutoscalers(fleet).Get(ctx, "fleet", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range hpa.Status.Conditions {
			if c.Type == autoscalingv2.ScalingActive && c.Status == "True" {
				return nil
			}
		}
		return fmt.Errorf("conditions: %v", hpa.Status.Conditions)
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// every calls f once in sampleTime until it fails or ctx ends.
func every(ctx context.Context, f func() error) error {
	tick := time.NewTicker(sampleTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := f(); err != nil {
				return err
			}
		}
	}
}
