//go:build e2e

package helm

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// TestUnderLoad does to an installed fleet what its users do, in the middle of work: it scales it
// while 200 machines are created, upgrades it, changes the CRDs, and rolls it back in the middle of
// rollouts, takes a Node from it, and reinstalls it.
func TestUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes; make helm-e2e")
	}
	b := newBed(t)
	b.step("the second version of the image is built", b.buildSecond)
	b.follow("Install")
	b.step("three replicas hold the slots", func() { b.held(0, 1, 2) })
	b.runs(firstTag)
	b.prepare()
	b.grow()
	stays := b.identities("pool-2")
	b.upgradeInRollout()
	b.rollBackInRollout()
	b.unchanged("pool-2", stays)
	b.survivesLostNode()
	b.unchanged("pool-2", stays)
	b.reinstall("pool-0", 55)
	b.unchanged("pool-2", stays)
	b.step("everything is deleted", b.end)
}

// grow scales the fleet to five replicas and back to two while 200 machines are created.
func (b *bed) grow() {
	b.Helper()
	b.deploy("pool-0", 50, 5)
	b.deploy("pool-1", 50, 5)
	b.inCreation()
	b.follow("Scale")
	b.deploy("pool-2", 50, 5)
	b.step("five replicas hold the slots", func() { b.held(0, 1, 2, 3, 4) })
	b.deploy("pool-3", 50, 5)
	b.inCreation()
	b.step("scaled down to two", func() {
		b.scale(2)
		b.held(0, 1)
	})
	b.step("200 machines run", b.served)
}

// inCreation waits until machines are being created, and logs how many.
func (b *bed) inCreation() {
	b.Helper()
	b.eventually("machines are being created", func(ctx context.Context) error {
		phases, err := b.lab.Phases(ctx, namespace)
		if err == nil && phases[v1alpha1.MachinePending]+phases[""] == 0 {
			err = fmt.Errorf("machines by phase: %v", phases)
		}
		if err == nil {
			b.Logf("machines by phase: %v", phases)
		}
		return err
	})
}

// upgradeInRollout upgrades the fleet to the second version of the image in the middle of a
// rollout.
func (b *bed) upgradeInRollout() {
	b.Helper()
	b.roll("pool-0", "second")
	b.tag = secondTag
	b.middle("pool-0")
	b.follow("Upgrade")
	b.tag = firstTag
	b.runs(secondTag)
	b.step("three replicas of the second version hold the slots", func() { b.held(0, 1, 2) })
	b.step("the rollout is complete", b.served)
}

// rollBackInRollout upgrades the CRDs and flags in the middle of a rollout, and rolls all of it
// back to the first release in the middle of another one.
func (b *bed) rollBackInRollout() {
	b.Helper()
	const column = "Extra"
	chart := b.changedChart(column)
	b.roll("pool-1", "second")
	b.middle("pool-1")
	b.step("upgraded with other CRDs and flags", func() {
		b.shell("helm upgrade fleet " + chart + " --namespace " + harness.FleetNamespace +
			" --reset-then-reuse-values --set logLevel=3 --set terminationGracePeriodSeconds=50 --wait")
	})
	b.crdHas(column, true)
	b.flag("--v=3", true)
	b.step("the rollout is complete", b.served)
	b.roll("pool-0", "third")
	b.middle("pool-0")
	b.step("rolled back to the first release", func() { b.shell("helm rollback fleet 1 --namespace " + harness.FleetNamespace + " --wait") })
	b.crdHas(column, false)
	b.flag("--v=3", false)
	b.runs(firstTag)
	b.step("three replicas of the first version hold the slots", func() { b.held(0, 1, 2) })
	b.step("the rollout is complete", b.served)
}

// survivesLostNode ends the VM below a replica. The others serve its machines, and it returns when
// its Node is deleted.
func (b *bed) survivesLostNode() {
	b.Helper()
	const lost = "fleet-1"
	b.deploy("pool-4", 10, 1)
	node := b.loseNode(lost)
	b.scaleUp("pool-3", 60)
	b.step("the others hold the slots of "+lost, func() { b.held(0, 2) })
	b.step("they serve all machines", b.served)
	b.step(lost+" runs on another Node", func() { b.replaceNode(node, lost) })
	b.step("three replicas hold the slots", func() { b.held(0, 1, 2) })
}

// middle checks that a rollout has not ended.
func (b *bed) middle(name string) {
	b.Helper()
	d, err := b.lab.Machines.MachineV1alpha1().MachineDeployments(namespace).Get(b.ctx, name, metav1.GetOptions{})
	b.must(err)
	if d.Status.UpdatedReplicas >= d.Spec.Replicas {
		b.Fatalf("the rollout of %s is complete, and should be in its middle: %d of %d machines are updated",
			name, d.Status.UpdatedReplicas, d.Spec.Replicas)
	}
	b.Logf("%d of %d machines of %s are updated", d.Status.UpdatedReplicas, d.Spec.Replicas, name)
}

// buildSecond builds the image again, with another version, and puts it where the lab's Nodes find
// it. The build stays in bin, so that the next run links nothing.
func (b *bed) buildSecond() {
	b.Helper()
	const variable = "github.com/machine-controller-fleet/machine-controller-fleet/internal/buildinfo.version"
	program := filepath.Join(b.bin, "second", "machine-controller-fleet")
	image := filepath.Join(b.lab.Dir, "images", "machine-controller-fleet:"+secondTag)
	b.shell("GOFLAGS='-trimpath -buildvcs=false' go build -ldflags '-X " + variable + "=v" + secondTag + "' -o '" + program +
		"' ./cmd/machine-controller-fleet\n" +
		"cp '" + program + "' '" + image + "'")
}

// runs checks which version each replica is.
func (b *bed) runs(tag string) {
	b.Helper()
	for i := range 3 {
		pod := fmt.Sprintf("fleet-%d", i)
		got := b.shell("kubectl -n " + harness.FleetNamespace + " exec " + pod + " -- /machine-controller-fleet version")
		if second := strings.Contains(got, "v"+secondTag); second != (tag == secondTag) {
			b.Errorf("%s is %q, want the image %s", pod, got, tag)
		}
	}
}

// flag checks whether the replicas have a flag.
func (b *bed) flag(flag string, want bool) {
	b.Helper()
	set, err := b.lab.Control.AppsV1().StatefulSets(harness.FleetNamespace).Get(b.ctx, harness.FleetName, metav1.GetOptions{})
	b.must(err)
	args := set.Spec.Template.Spec.Containers[0].Args
	if got := strings.Contains(" "+strings.Join(args, " ")+" ", " "+flag+" "); got != want {
		b.Errorf("%s among the flags: %t, want %t: %q", flag, got, want, args)
	}
}

// changedChart returns a copy of the chart in which the definition of Machines has one more column.
func (b *bed) changedChart(column string) string {
	b.Helper()
	chart := filepath.Join(b.TempDir(), "chart")
	b.must(os.CopyFS(chart, os.DirFS(filepath.Join(b.root, "charts", "machine-controller-fleet"))))
	file := filepath.Join(chart, "definitions", "machine.sapcloud.io_machines.yaml")
	definition, err := os.ReadFile(file)
	b.must(err)
	const columns = "  - additionalPrinterColumns:\n"
	before, after, found := strings.Cut(string(definition), columns)
	if !found {
		b.Fatalf("%s has no %q", file, columns)
	}
	more := fmt.Sprintf("    - {description: Of a test, jsonPath: .metadata.uid, name: %s, type: string}\n", column)
	b.must(os.WriteFile(file, []byte(before+columns+more+after), 0o600))
	return chart
}

// crdHas checks whether the definition of Machines has a column.
func (b *bed) crdHas(column string, want bool) {
	b.Helper()
	var crd struct {
		Spec struct {
			Versions []struct {
				AdditionalPrinterColumns []struct{ Name string }
			}
		}
	}
	b.must(json.Unmarshal([]byte(b.shell("kubectl get crd machines.machine.sapcloud.io -o json")), &crd))
	got := false
	for _, version := range crd.Spec.Versions {
		for _, c := range version.AdditionalPrinterColumns {
			got = got || c.Name == column
		}
	}
	if got != want {
		b.Errorf("the definition of Machines has the column %s: %t, want %t", column, got, want)
	}
}
