package replica

import (
	"strconv"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// TestNextOwnerContinuesARollingUpdate rolls three machines, and ends the owner of
// their slot while the first new machine is being created. There are never more than four machines,
// and never fewer than three that run. One replica alone exports the metrics of the
// MachineDeployment, and none does when it is deleted.
func TestNextOwnerContinuesARollingUpdate(t *testing.T) {
	o := replicaOptions()
	for name, end := range map[string]func(*process){"killed": (*process).crash, "leaves": (*process).quit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newTrial(t, o, 1, nil)
				defer r.end()
				r.createUnmanaged()
				r.createClass("a")
				root := r.putRoot("a", "d", 3)
				r.start("fleet-0")
				r.start("fleet-1")
				r.until("three machines run", func() bool { return r.missing() == "" })
				r.relabelTemplate("a", "d", "new")
				r.until("the first new machine is created", func() bool { return r.ofVersion("new") == 1 })
				end(r.ownerOf("a", "d"))
				r.until("all machines are replaced", func() bool {
					r.checkLimits(3, 4)
					return r.missing() == "" && r.ofVersion("new") == 3
				})
				exported := func() (values []float64) {
					for _, p := range r.alive() {
						if value, found := p.metric("mcm_machine_deployment_status_replicas"); found {
							values = append(values, value)
						}
					}
					return values
				}
				r.until("one replica exports the number of machines", func() bool { got := exported(); return len(got) == 1 && got[0] == 3 })
				r.deleteRoot(root)
				r.until("nothing is left, in metrics too", func() bool { return r.missing() == "" && len(exported()) == 0 })
			})
		})
	}
}

// relabelTemplate changes the label version of a MachineDeployment's template, so that its machines
// are replaced.
func (t *trial) relabelTemplate(namespace, name, version string) {
	t.control.Edit("machinedeployments", namespace, name, func(u *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(u.Object, version, "spec", "template", "metadata", "labels", "version") // it is an object
	})
}

// ofVersion counts the machines of a version of the template.
func (t *trial) ofVersion(version string) (n int) {
	for _, m := range t.control.List("machines") {
		if m.GetLabels()["version"] == version {
			n++
		}
	}
	return n
}

// checkLimits fails unless at least so many machines run, and at most so many exist.
func (t *trial) checkLimits(least, most int) {
	machines, run := t.control.List("machines"), 0
	for _, m := range machines {
		phase, _, _ := unstructured.NestedString(m.Object, "status", "currentStatus", "phase")
		if phase == string(v1alpha1.MachineRunning) && m.GetDeletionTimestamp() == nil {
			run++
		}
	}
	if run < least || len(machines) > most {
		t.fail("%d of %d machines run, want at least %d, and at most %d machines", run, len(machines), least, most)
	}
}

// ownerOf returns the process that holds the slot of a MachineDeployment.
func (t *trial) ownerOf(namespace, name string) *process {
	t.Helper()
	lease := t.leaseOf(namespace, name)
	holder, _, _ := unstructured.NestedString(lease.Object, "spec", "holderIdentity")
	for _, p := range t.alive() {
		if p.session == holder {
			return p
		}
	}
	t.Fatalf("%s is held by %q, which does not live", lease.GetName(), holder)
	return nil
}

// leaseOf returns the slot Lease of a MachineDeployment.
func (t *trial) leaseOf(namespace, name string) *apiserver.Object {
	t.Helper()
	slot, err := strconv.Atoi(slotOf(t.control.Get("machinedeployments", namespace, name)))
	if err != nil {
		t.Fatal(err)
	}
	return t.control.Get("leases", fleetNamespace, member.SlotLeaseName("fleet", slot, t.options.Fleet.Slots))
}
