//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/planted"
)

// TestAzure runs the driver of Azure in a separate process, against the small Azure of the lab,
// whose VMs become Nodes.
func TestAzure(t *testing.T) {
	t.Parallel()
	lab := startLab(t, "azure", func(o *harness.Options) {
		o.Replicas, o.Clouds, o.Drivers = 2, harness.AzureClouds, harness.AzureDrivers
		o.FleetFlags = "--machine-safety-orphan-vms-period=5s --machine-safety-orphan-vms-quarantine=5s --v=10"
	})
	t.Run("Undisturbed", func(t *testing.T) {
		t.Run("Life", func(t *testing.T) { t.Parallel(); newAzureSpace(t, lab, "life").lives() })
		t.Run("Orphan", func(t *testing.T) { t.Parallel(); newAzureSpace(t, lab, "orphan").sweeps() })
	})
	t.Run("Killed", func(t *testing.T) { newAzureSpace(t, lab, "killed").survives() })
	t.Run("Secrets", func(t *testing.T) { newAzureSpace(t, lab, "secrets").logsNoSecrets() })
}

// azureSpace is the namespace of a test with machines at Azure.
type azureSpace struct {
	*space

	azure *harness.Azure
}

func newAzureSpace(t *testing.T, lab *harness.Lab, name string) *azureSpace {
	t.Helper()
	s := newSpaceBy(t, lab, unused("azure-"+name), lab.PrepareAzure)
	azure, err := lab.Azure()
	s.must(err)
	return &azureSpace{space: s, azure: azure}
}

// lives creates machines, replaces them by a rolling update, and deletes them.
func (s *azureSpace) lives() {
	const machines = 3
	s.deploy("pool", machines)
	s.running("pool", machines)
	before := s.joined()
	s.rollIt("second")
	s.rolled("second", machines)
	after := s.joined()
	for name := range after {
		if _, old := before[name]; old {
			s.Errorf("machine %s was not replaced", name)
		}
	}
	s.remove("machinedeployments", "pool")
	s.gone(slices.Concat(slices.Collect(maps.Values(before)), slices.Collect(maps.Values(after)))...)
}

// sweeps has a VM of the fleet that no machine has be deleted, and no other VM: not those of
// machines, of the same namespace of another control cluster, and of no fleet.
func (s *azureSpace) sweeps() {
	s.deploy("pool", 2)
	s.running("pool", 2)
	before := s.joined()
	all := s.inventory(s.Context())
	like := all[slices.IndexFunc(all, harness.AzureResource.IsVM)].Tags
	of := func(uid, cluster string) map[string]string {
		tags := maps.Clone(like)
		tags[harness.TagAzureUID], tags[harness.TagAzureControlCluster] = uid, cluster
		return tags
	}
	created := map[string]string{}
	for name, tags := range map[string]map[string]string{
		"foreign": nil, "elsewhere": of(ofAnother, "another"), "orphan": of("orphan", like[harness.TagAzureControlCluster]),
	} {
		id, err := s.azure.Create(s.Context(), s.name+"-"+name, tags)
		s.must(err)
		created[name] = id
	}
	s.eventually("the orphan is deleted, and no other VM", func(ctx context.Context) error {
		all, err := s.azure.Inventory(ctx)
		if err != nil {
			return err
		}
		exists := map[string]bool{}
		for _, r := range all.Resources {
			exists[r.ID] = true
		}
		if !exists[created["foreign"]] || !exists[created["elsewhere"]] {
			s.Fatalf("a VM that is none of the fleet was deleted; there are %v", exists)
		}
		if exists[created["orphan"]] {
			return fmt.Errorf("the orphan exists")
		}
		return nil
	})
	if after := s.joined(); !maps.Equal(before, after) {
		s.Errorf("machines were %v and are %v", before, after)
	}
	s.remove("machinedeployments", "pool")
	s.gone(slices.Collect(maps.Values(before))...)
}

// survives kills the replicas and the process of the driver in turn, while machines are created and
// while they are deleted.
func (s *azureSpace) survives() {
	const machines = 20
	s.deploy("pool", machines)
	s.kills()
	s.running("pool", machines)
	joined := s.joined()
	s.remove("machinedeployments", "pool")
	s.kills()
	s.gone(slices.Collect(maps.Values(joined))...)
}

// logsNoSecrets has Azure reject a secret, which it shows in its answer, and expects neither that
// nor the one of other tests in any log.
func (s *azureSpace) logsNoSecrets() {
	const wrong = "planted+azure/wrong=of-the-lab-51f7"
	content := harness.AzureSecret()
	secrets := planted.Secrets{"secret of Azure": content["clientSecret"], "wrong secret of Azure": wrong}
	content["clientSecret"] = wrong
	s.createSecret("wrong", content)
	class := harness.AzureClass(s.name)
	class.Name, class.SecretRef.Name = "wrong", "wrong"
	_, err := s.api().MachineClasses(s.name).Create(s.Context(), class, metav1.CreateOptions{})
	s.must(err)
	s.createMachine("rejected", func(m *v1alpha1.Machine) { m.Spec.Class.Name = "wrong" })
	s.machineFails("rejected", driver.Unauthenticated, "AADSTS")
	files, err := filepath.Glob(filepath.Join(s.lab.Dir, "logs", "*.log"))
	s.must(err)
	ofDriver := false
	for _, file := range files {
		name := filepath.Base(file)
		ofDriver = ofDriver || name == harness.AzureDriver+".log"
		if name != harness.AzureDriver+".log" && !strings.HasPrefix(name, harness.FleetName+"-") {
			continue
		}
		log, err := os.ReadFile(file)
		s.must(err)
		for _, found := range secrets.Find(string(log)) {
			s.Errorf("%s: %s", name, found)
		}
	}
	if !ofDriver {
		s.Errorf("there is no log of the driver: %v", files)
	}
	// Without credentials nothing of it can be deleted, and there is nothing.
	s.remove("machines", "rejected")
	s.patch("machines", "rejected", `{"metadata":{"finalizers":null}}`)
}

// kills kills each process once a second, one after the other, and starts it again.
func (s *azureSpace) kills() {
	s.Helper()
	pace := time.NewTicker(time.Second)
	defer pace.Stop()
	for _, process := range []string{harness.Fleet, harness.AzureDriver, "fleet-1", harness.AzureDriver} {
		<-pace.C
		phases, err := s.lab.Phases(s.Context(), s.name)
		s.must(err)
		s.Logf("killing %s, with %v", process, phases)
		for _, action := range []string{harness.Kill, harness.Start} {
			s.must(s.lab.Do(s.Context(), process, action))
		}
	}
}

// ofAnother is the UID of a machine of another control cluster.
const ofAnother = "of-another"

// inventory returns the resources that the fleet has created for machines of the namespace.
func (s *azureSpace) inventory(ctx context.Context) []harness.AzureResource {
	s.Helper()
	all, err := s.azure.Inventory(ctx)
	s.must(err)
	return slices.DeleteFunc(all.Resources, func(r harness.AzureResource) bool {
		return r.Tags[harness.TagAzureNamespace] != s.name || r.Tags[harness.TagAzureUID] == ofAnother
	})
}

// joined waits until each machine has a Node, a VM of its UID, and three resources that the VM
// uses, and there are no others. It returns the UIDs of the machines, by name.
func (s *azureSpace) joined() map[string]string {
	s.Helper()
	var joined map[string]string
	s.eventually("machines, Nodes and resources match", func(ctx context.Context) error {
		machines, err := s.machines(ctx, "")
		if err != nil {
			return err
		}
		joined = map[string]string{}
		vms, used := map[string]string{}, map[string]int{}
		for _, r := range s.inventory(ctx) {
			if r.IsVM() {
				vms["azure://"+r.ID] = r.Tags[harness.TagAzureUID]
			} else {
				used["azure://"+r.User]++
			}
		}
		var wrong deviations
		wrong.unless(len(vms) == len(machines) && len(used) == len(machines), "for %d machines there are VMs %v, with parts %v",
			len(machines), vms, used)
		for _, m := range machines {
			joined[m.Name] = string(m.UID)
			wrong.unless(vms[m.Spec.ProviderID] == string(m.UID) && used[m.Spec.ProviderID] == 3, "%s has VM %s; there are %v, with parts %v",
				m.Name, m.Spec.ProviderID, vms, used)
			node, err := s.lab.Target.CoreV1().Nodes().Get(ctx, m.Labels[v1alpha1.LabelNode], metav1.GetOptions{})
			if err != nil {
				wrong.unless(false, "%s: %w", m.Name, err)
				continue
			}
			wrong.unless(node.Spec.ProviderID == m.Spec.ProviderID, "Node %s is VM %s, its machine %s",
				node.Name, node.Spec.ProviderID, m.Spec.ProviderID)
			wrong = append(wrong, checkNode(m, node)...)
		}
		return wrong.err()
	})
	return joined
}

// gone waits until nothing is left of all machines, at Azure and where its VMs run. One VM was
// created for each of the machines with these UIDs, and not more than one for any other.
func (s *azureSpace) gone(uids ...string) {
	s.Helper()
	s.space.gone()
	s.eventually("nothing is left at Azure", func(ctx context.Context) error {
		left := s.inventory(ctx)
		running, err := s.lab.Cloud.VMs(ctx, "")
		if err != nil {
			return err
		}
		running = slices.DeleteFunc(running, func(vm cloudapi.Instance) bool { return vm.Tags[harness.TagAzureNamespace] != s.name })
		if len(left)+len(running) > 0 {
			return fmt.Errorf("there are %+v, and %d VMs run", left, len(running))
		}
		return nil
	})
	all, err := s.azure.Inventory(s.Context())
	s.must(err)
	s.must(all.OneVMEach(uids...))
}
