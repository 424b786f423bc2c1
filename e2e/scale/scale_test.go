//go:build e2e

package scale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

const (
	namespace  = "scale"
	fleet      = "machine-controller-fleet" // the namespace of the fleet
	machines   = 500
	groups     = 10 // MachineDeployments
	atRest     = 2  // replicas
	underLoad  = 4
	boot       = 90 * time.Second
	sampleTime = time.Second
	// quiet is how long the fleet is recorded before and after, to show that the number rests.
	quiet = 30 * time.Second
)

// TestFleetFollowsItsLoad creates 500 machines and lets them rest. The autoscaler needs four
// replicas for the first and two for the second: 500 machines in transition are 3.3 times what one
// replica should carry, and 500 at rest are an eighth of it.
func TestFleetFollowsItsLoad(t *testing.T) {
	if reason := harness.NoKubelets(t.Context()); reason != "" || os.Geteuid() != 0 {
		t.Fatalf("expected root, and a computer that can run kubelets, for the fleet's pods; got user %d; %s", os.Geteuid(), reason)
	}
	// A replica fits on each of the Nodes.
	ctx, lab := harness.Begin(t, harness.Options{Clusters: 1, NoFleet: true, Nodes: underLoad}, nil)
	s := newScene(ctx, t, lab)
	// From now on: the Nodes of the fleet's own have booted sooner.
	if err := errors.Join(lab.Cloud.Set(ctx, fmt.Sprintf(`{"bootTime": {"mean": %q}}`, boot)), lab.Prepare(ctx, namespace, "")); err != nil {
		t.Fatal(err)
	}
	s.waitReplicas(atRest)
	s.rest(quiet)

	for i := range groups {
		deployment := harness.Deployment(namespace, fmt.Sprintf("group-%d", i), machines/groups)
		if _, err := lab.Machines.MachineV1alpha1().MachineDeployments(namespace).Create(ctx, deployment, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s.mark("500 machines are created")
	s.waitReplicas(underLoad)
	if err := lab.Running(ctx, namespace, machines); err != nil {
		t.Fatal(err)
	}
	s.mark("all run")
	s.waitReplicas(atRest)
	s.rest(quiet)

	s.checkSteps()
	s.checkMachines()
}

// waitReplicas waits until so many replicas are wanted and hold slots.
func (s *scene) waitReplicas(n int) {
	s.t.Helper()
	err := harness.EventuallyEvery(s.ctx, sampleTime, fmt.Sprintf("%d replicas hold slots", n), func(context.Context) error {
		last := s.record.last()
		if last.Replicas != n || last.Serving != n {
			return fmt.Errorf("%d replicas are wanted, %d hold slots, the load is %.2f", last.Replicas, last.Serving, last.Load)
		}
		return s.failed()
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// rest waits for some time, in which the number of replicas must not change.
func (s *scene) rest(d time.Duration) {
	s.t.Helper()
	before := s.record.last()
	err := harness.EventuallyEvery(s.ctx, sampleTime, "the time is over", func(context.Context) error {
		last := s.record.last()
		if last.Replicas != before.Replicas {
			s.t.Fatalf("%d replicas became %d although nothing happens", before.Replicas, last.Replicas)
		}
		if last.At-before.At < d {
			return fmt.Errorf("%s of %s are over", last.At-before.At, d)
		}
		return s.failed()
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// checkSteps: the number rises to its maximum and falls again, and does not go up and down in
// between. It falls one by one.
func (s *scene) checkSteps() {
	var steps []int
	for _, sample := range s.record.samples {
		steps = append(steps, sample.Replicas)
	}
	steps = slices.Compact(steps)
	s.t.Logf("replicas: %v", steps)
	top := slices.Index(steps, underLoad)
	if top < 0 || slices.Max(steps) != underLoad || !slices.IsSorted(steps[:top+1]) {
		s.t.Errorf("replicas were %v, want a rise to %d", steps, underLoad)
		return
	}
	for i, n := range steps[top:] {
		if want := underLoad - i; n != want {
			s.t.Errorf("replicas were %v, want one less at a time after %d", steps, underLoad)
			return
		}
	}
}

// checkMachines: scaling has replaced no machine.
func (s *scene) checkMachines() {
	phases, err := s.lab.Phases(s.ctx, namespace)
	if err != nil {
		s.t.Fatal(err)
	}
	vms, err := s.lab.Cloud.History(s.ctx, namespace)
	if err != nil {
		s.t.Fatal(err)
	}
	if phases[v1alpha1.MachineRunning] != machines || len(vms) != machines {
		s.t.Errorf("machines by phase: %v, VMs that exist or existed: %d; want %d running machines, each with the VM that it began with",
			phases, len(vms), machines)
	}
}
