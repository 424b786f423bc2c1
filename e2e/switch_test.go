//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// TestNamespaceSwitch: with Kubernetes' own controllers the Deployment of the documentation is
// available while the fleet serves its namespace, also after its pods were deleted, and not while
// it is scaled to 0. The autoscaler's double works then, and is suspended.
func TestNamespaceSwitch(t *testing.T) {
	t.Parallel()
	lab := startLab(t, "switch", func(o *harness.Options) {
		o.Clusters, o.Replicas, o.FleetFlags = 2, 2, "--namespace-switch=deployment"
	})
	s := newSpace(t, lab, "switch", "")
	a := scaler{s, 3}
	works := func(ctx context.Context) error {
		var available int
		if refused, err := a.query(ctx, &available, "refresh", "pool"); refused != "" || err != nil {
			return errors.Join(errors.New(refused), err)
		}
		return nil
	}
	suspended := func(ctx context.Context) error {
		if works(ctx) == nil {
			return errors.New("it works")
		}
		return nil
	}
	s.deploy("pool", 1)
	s.eventually("the autoscaler is suspended without the Deployment", suspended)
	s.kubectl("apply", "-f", filepath.Join("..", "docs", "examples", "autoscaler", "deployment.yaml"))
	s.running("pool", 1)
	s.eventually("the autoscaler works", works)

	first := s.standIn()
	s.kubectl("delete", "pod", "--selector=role=machine-controller-manager")
	s.eventually("the next pod is ready", func(ctx context.Context) error {
		if next := s.standIn(); next == "" || next == first {
			return fmt.Errorf("the pod is %q", next)
		}
		return works(ctx)
	})

	s.kubectl("scale", "deployment/machine-controller-manager", "--replicas=0")
	s.eventually("the autoscaler is suspended", suspended)
	s.scale("pool", 2)
	s.kubectl("scale", "deployment/machine-controller-manager", "--replicas=1")
	s.running("pool", 2)
	s.eventually("the autoscaler works again", works)
	s.remove("machinedeployments", "pool")
	s.gone()
}

// standIn returns the UID of the pod that the fleet reports as ready; "" if there is none, or
// several.
func (s *space) standIn() string {
	s.Helper()
	pods, err := s.lab.Control.CoreV1().Pods(s.name).List(s.Context(), metav1.ListOptions{})
	s.must(err)
	if len(pods.Items) != 1 || pods.Items[0].Status.Phase != corev1.PodRunning || pods.Items[0].Spec.NodeName != "" {
		return ""
	}
	return string(pods.Items[0].UID)
}
