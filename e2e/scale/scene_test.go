//go:build e2e

package scale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// scene is a lab with everything that scales its fleet.
type scene struct {
	ctx    context.Context //nolint:containedctx // it ends with the test, and so does the scene
	t      *testing.T
	lab    *harness.Lab
	dir    string
	prom   *harness.Prometheus
	record record

	mu     sync.Mutex
	broken error // what the record met
}

// newScene starts Prometheus, KEDA, the fleet with its autoscaler and the record, in this order.
func newScene(ctx context.Context, t *testing.T, lab *harness.Lab) *scene {
	t.Helper()
	s := &scene{ctx: ctx, t: t, lab: lab, dir: filepath.Join(lab.Dir, "scale")}
	if err := os.MkdirAll(s.dir, 0o750); err != nil {
		t.Fatal(err)
	}
	s.prom = s.startPrometheus()
	s.startKEDA()
	s.install()
	s.waitAutoscaler()
	// What KEDA asks Prometheus for.
	query, err := lab.Kubectl(ctx, "-n", fleet, "get", "scaledobject/fleet", "-o", "jsonpath={.spec.triggers[0].metadata.query}")
	if err != nil {
		t.Fatal(err)
	}
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

// install installs the fleet with its autoscaler.
func (s *scene) install() {
	s.t.Helper()
	repository, err := harness.Repository()
	if err != nil {
		s.t.Fatal(err)
	}
	helm := s.command("helm", "install", "fleet", filepath.Join(repository, "charts/machine-controller-fleet"),
		"--namespace", fleet, "--create-namespace", "--wait", "--timeout", harness.Standstill.String(),
		"--values", filepath.Join(s.lab.Dir, "values.yaml"), "--values", filepath.Join(repository, "e2e/scale/testdata/values.yaml"),
		"--set", "autoscaling.prometheus.serverAddress="+s.prom.URL)
	helm.Env = append(helm.Env, "KUBECONFIG="+s.kubeconfig(), "HELM_CACHE_HOME="+s.dir, "HELM_CONFIG_HOME="+s.dir, "HELM_DATA_HOME="+s.dir)
	s.run(helm)
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

// waitAutoscaler waits until the autoscaler that KEDA has created has read the load.
func (s *scene) waitAutoscaler() {
	s.t.Helper()
	err := harness.EventuallyEvery(s.ctx, sampleTime, "KEDA's autoscaler reads the load", func(ctx context.Context) error {
		hpa, err := s.lab.Control.AutoscalingV2().HorizontalPodAutoscalers(fleet).Get(ctx, "fleet", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if owner := metav1.GetControllerOf(hpa); owner == nil || owner.Kind != "ScaledObject" {
			s.t.Fatalf("the autoscaler belongs to %v, want KEDA's ScaledObject", owner)
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
