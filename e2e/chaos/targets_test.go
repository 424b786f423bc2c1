//go:build e2e

package chaos

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/chaos/record"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

var (
	// lightTargets is the number of target clusters of TestTargetClusters with a light API server,
	// next to two real ones.
	lightTargets = flag.Int("light-targets", 18, "how many light target clusters TestTargetClusters has")
	// targetFaultLasts is how long each fault of a target cluster lasts.
	targetFaultLasts = flag.Duration("target-fault-lasts", 2*time.Minute, "how long each fault of TestTargetClusters lasts")
)

const (
	// targetMachines is how many machines a target cluster has, which change by one.
	targetMachines = 3
	// targetHealthTimeout is short, so that machines would be replaced for the faults.
	targetHealthTimeout = "--machine-health-timeout=1m"
	// targetSecret has the credentials of a target cluster.
	targetSecret = "machine-controller-fleet-target"
	// targetLease records which cluster a namespace had first.
	targetLease = "machine-controller-fleet-target"
)

// targetFault is a fault of one target cluster, or of its namespace.
type targetFault struct {
	name       string
	begin, end func(t *testing.T, b *bed, target string)
	real       bool // it needs a real API server; others are of light ones
}

func targetFaults() []targetFault {
	link := func(f harness.Fault) func(t *testing.T, b *bed, target string) {
		return func(t *testing.T, b *bed, target string) { b.link(t, target, "server", f) }
	}
	heal := link(harness.Fault{})
	faults := []targetFault{
		{name: "its API server is killed", real: true, begin: func(t *testing.T, b *bed, target string) {
			b.do(t, target+"-kube-apiserver", harness.Kill)
		}, end: func(t *testing.T, b *bed, target string) {
			b.recorder.TargetOutage(func() { b.do(t, target+"-kube-apiserver", harness.Start) })
		}},
		{name: "it is replaced by an empty cluster", begin: func(t *testing.T, b *bed, target string) {
			if err := b.lab.ReplaceLight(b.ctx, target); err != nil {
				t.Fatal(err)
			}
			b.link(t, target, "server", harness.Refuse()) // watches of the earlier one end
			heal(t, b, target)
		}, end: func(t *testing.T, b *bed, target string) { // it was intended: machines get their Nodes in the new one
			if err := b.lab.Control.CoordinationV1().Leases(target).Delete(b.ctx, targetLease, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			b.link(t, target, "server", harness.Refuse())
			heal(t, b, target)
		}},
		{name: "its Secret is lost", begin: func(t *testing.T, b *bed, target string) {
			secrets := b.lab.Control.CoreV1().Secrets(target)
			if err := secrets.Delete(b.ctx, targetSecret, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}, end: rotateTarget},
		{name: "its Secret is invalid", begin: func(t *testing.T, b *bed, target string) {
			_, err := b.lab.Control.CoreV1().Secrets(target).Patch(b.ctx, targetSecret, types.MergePatchType,
				[]byte(`{"data":{"kubeconfig":"eA=="}}`), metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
		}, end: rotateTarget},
	}
	for name, f := range map[string]harness.Fault{
		"its link is cut": harness.Cut(harness.Both), "answers are cut": harness.Cut(harness.Answers),
		"connections are refused": harness.Refuse(), "its link is slow": harness.Delay(2*time.Second, ""),
		"its link has 8 kB/s": harness.Limit(8, ""),
	} {
		faults = append(faults, targetFault{name: name, begin: link(f), end: heal})
	}
	return faults
}

// rotateTarget writes the Secret of a target cluster anew, with other credentials.
func rotateTarget(t *testing.T, b *bed, target string) {
	if err := b.lab.Rotate(b.ctx, target); err != nil {
		t.Fatal(err)
	}
}

// TestTargetClusters injects a fault into each of several target clusters, all at the same time and
// for longer than the health timeout, while machines of all others are created and deleted. Those
// others are served meanwhile; of clusters with a fault no machine is lost.
func TestTargetClusters(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("part of long runs")
	}
	b := &bed{namespace: metav1.NamespaceAll, slots: slots, random: rand.New(rand.NewPCG(seed(t), 1))}
	b.startLab(t, harness.Options{Clusters: 2, Light: *lightTargets, Replicas: 3, CloudsimFlags: cloudFlags, FleetFlags: targetHealthTimeout})
	b.waitHeld(t)
	b.recorder = record.Start(b.ctx, t, b.lab, b.namespace)
	members, err := b.lab.Members()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, m := range members {
		all = append(all, m.Name)
		d := harness.Deployment(m.Name, m.Name, targetMachines)
		d.Spec.Template.Spec.Class.Name = "small"
		if _, err := b.lab.Machines.MachineV1alpha1().MachineDeployments(m.Name).Create(b.ctx, d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	b.running(t, targetMachines*len(all))
	sick, others := map[string]targetFault{}, all[1:]
	for _, f := range targetFaults() {
		if f.real {
			sick[all[0]] = f
			continue
		}
		sick[others[len(others)-1]], others = f, others[:len(others)-1]
	}
	before := b.vmsOf(t, sick)
	for target, f := range sick {
		t.Logf("%s: %s", target, f.name)
		f.begin(t, b, target)
	}
	served := b.changeTargets(t, others, *targetFaultLasts)
	t.Logf("%d changes of the %d other clusters were complete meanwhile", served, len(others))
	if served < len(others) {
		t.Errorf("%d changes of other clusters were complete, want %d or more", served, len(others))
	}
	if after := b.vmsOf(t, sick); !maps.Equal(before, after) {
		t.Errorf("VMs of clusters with a fault: %v, before %v", after, before)
	}
	for target, f := range sick {
		f.end(t, b, target)
	}
	if err := harness.Eventually(b.ctx, "all desired machines run, each with one VM", func(ctx context.Context) error {
		return record.Converged(ctx, b.lab, b.namespace)
	}); err != nil {
		t.Fatal(err)
	}
	if err := noSecondVM(b.lab); err != nil {
		t.Error(err)
	}
	b.recorder.Verdict(t)
}

// vmsOf returns the VMs of target clusters, by ID.
func (b *bed) vmsOf(t *testing.T, of map[string]targetFault) map[string]bool {
	t.Helper()
	vms, err := b.lab.Cloud.VMs(b.ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, vm := range vms {
		if namespace := vm.Tags[harness.TagCluster]; of[namespace].name != "" {
			ids[namespace+"/"+vm.ID] = true
		}
	}
	return ids
}

// changeTargets adds and removes a machine of each target cluster, again and again for some time,
// and returns how many changes were complete.
func (b *bed) changeTargets(t *testing.T, targets []string, lasts time.Duration) (complete int) {
	t.Helper()
	until := time.Now().Add(lasts)
	var mu sync.Mutex
	var changing sync.WaitGroup
	for _, target := range targets {
		changing.Go(func() {
			for size := targetMachines + 1; time.Now().Before(until); size = 2*targetMachines + 1 - size {
				b.recorder.Expect(target, size)
				if err := b.lab.ScaleDeployment(b.ctx, target, target, size); err != nil {
					t.Error(err)
					return
				}
				if err := b.lab.Running(b.ctx, target, size); err != nil {
					t.Error(fmt.Errorf("while other clusters have faults: %w", err))
					return
				}
				mu.Lock()
				complete++
				mu.Unlock()
			}
		})
	}
	changing.Wait()
	return complete
}
