//go:build e2e

package chaos

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/chaos/record"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

const (
	kills      = 50
	killsShort = 3
	// between two kills the fleet works for up to this long, uniformly drawn: about the life of a
	// machine here, so that every step of it is hit.
	between = 3 * time.Second
)

// cloudFlags make a machine's life short, with each step long enough to be hit.
const cloudFlags = "--create-latency=300ms --create-latency-spread=200ms --delete-latency=600ms --delete-latency-spread=300ms " +
	"--modify-latency=200ms --modify-latency-spread=100ms --boot-time=1500ms --boot-time-spread=500ms"

func seed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("SEED")
	if text == "" {
		text = time.Now().UTC().Format("20060102")
	}
	s, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("SEED: expected a number, got %q", text)
	}
	t.Logf("SEED=%d", s)
	return s
}

// TestKill kills the fleet at random moments under load and restarts it each time: no machine is
// stuck, no VM is created twice, none is lost.
func TestKill(t *testing.T) {
	t.Parallel()
	n := kills
	if testing.Short() {
		n = killsShort
	}
	b := newBed(t, 1)
	b.load(t)
	var hits []blow
	for range n {
		if err := b.scene.busy(b.ctx); err != nil {
			t.Fatal(err)
		}
		moment := time.Duration(b.random.Int64N(int64(between)))
		b.wait(t, moment)
		if err := b.scene.busy(b.ctx); err != nil {
			t.Fatal(err)
		}
		at := time.Now()
		hit := b.scene.snapshot()
		b.do(t, harness.Fleet, harness.Kill)
		hits = append(hits, blow{at: at, after: moment, hit: hit})
		b.do(t, harness.Fleet, harness.Start)
		b.atWork(t, harness.Fleet)
	}
	b.end(t)
	report(t, b.lab, hits)
}

// endRight waits until every MachineDeployment has its desired machines, each with a VM, and then,
// after their deletion, until nothing is left.
func endRight(ctx context.Context, t *testing.T, lab *harness.Lab, namespace string) {
	t.Helper()
	start := time.Now()
	if err := harness.Eventually(ctx, "all desired machines run, each with one VM", func(ctx context.Context) error {
		return record.Converged(ctx, lab, namespace)
	}); err != nil {
		t.Fatal(err)
	}
	t.Logf("the desired state is reached %.1f s after the end of the load", time.Since(start).Seconds())
	api := lab.Machines.MachineV1alpha1().MachineDeployments(namespace)
	if err := api.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := harness.Eventually(ctx, "nothing is left", func(ctx context.Context) error {
		return allDeleted(ctx, lab, namespace)
	}); err != nil {
		t.Fatal(err)
	}
	if err := noSecondVM(lab); err != nil {
		t.Fatal(err)
	}
}

func allDeleted(ctx context.Context, lab *harness.Lab, namespace string) error {
	if err := noObjects(ctx, lab, namespace); err != nil {
		return err
	}
	vms, err := lab.Cloud.VMs(ctx, "")
	if err != nil {
		return err
	}
	if n := len(vms); n > 0 {
		return fmt.Errorf("%d VMs without a machine, such as %s (%s)", n, vms[0].Name, vms[0].ID)
	}
	nodes, err := lab.Target.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if n := len(nodes.Items); n > 0 {
		return fmt.Errorf("%d Nodes, such as %s", n, nodes.Items[0].Name)
	}
	tokens, err := lab.Target.CoreV1().Secrets(metav1.NamespaceSystem).
		List(ctx, metav1.ListOptions{FieldSelector: "type=bootstrap.kubernetes.io/token"})
	if err != nil {
		return err
	}
	if n := len(tokens.Items); n > 0 {
		return fmt.Errorf("%d bootstrap tokens, such as %s", n, tokens.Items[0].Name)
	}
	return nil
}

// noObjects returns an error while there are MachineDeployments, MachineSets or Machines.
func noObjects(ctx context.Context, lab *harness.Lab, namespace string) error {
	machines, err := lab.Machines.MachineV1alpha1().Machines(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if n := len(machines.Items); n > 0 {
		m := machines.Items[0]
		return fmt.Errorf("%d machines, such as %s: %s: %s", n, m.Name, m.Status.CurrentStatus.Phase, m.Status.LastOperation.Description)
	}
	sets, err := lab.Machines.MachineV1alpha1().MachineSets(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	deployments, err := lab.Machines.MachineV1alpha1().MachineDeployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(sets.Items)+len(deployments.Items) > 0 {
		return fmt.Errorf("%d MachineSets and %d MachineDeployments", len(sets.Items), len(deployments.Items))
	}
	return nil
}
