//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated/cloudapi"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

const (
	// healthTimeout is short, and longer than it takes until all replicas have the counts of the others.
	healthTimeout = 25 * time.Second
	resumeAfter   = 10 * time.Second
)

// TestZoneInTheDark stops the heartbeats of all Nodes of a zone.
func TestZoneInTheDark(t *testing.T) {
	t.Parallel()
	zoneInTheDark(newSpace(t, healthLab(t, "dark"), "dark", `{"zone":"sim-1a"}`))
}

// TestMachinesDie stops the heartbeats of Nodes one by one.
func TestMachinesDie(t *testing.T) {
	t.Parallel()
	machinesDie(newSpace(t, healthLab(t, "dying"), "dying", ""))
}

// healthLab starts a lab with a fleet of two replicas and a short health timeout.
func healthLab(t *testing.T, name string) *harness.Lab {
	t.Helper()
	lab := startLab(t, name, func(o *harness.Options) {
		o.Replicas = 2
		o.FleetFlags = fmt.Sprintf("--machine-health-timeout=%s --circuit-breaker-close-after=%s", healthTimeout, resumeAfter)
	})
	if err := held(t.Context(), lab); err != nil {
		t.Fatal(err)
	}
	return lab
}

// zoneInTheDark: all machines of a zone with 4 MachineDeployments become not Ready, and none is replaced, also when one of the
// replicas ends meanwhile; another zone is not affected. The zone recovers. Then one machine dies, and is replaced.
func zoneInTheDark(s *space) {
	s.inZone(harness.ClassName, "sim-1a")
	other := harness.Class(s.name, `{"zone":"sim-1b"}`)
	other.Name = "elsewhere"
	_, err := s.api().MachineClasses(s.name).Create(s.Context(), other, metav1.CreateOptions{})
	s.must(err)
	s.inZone(other.Name, "sim-1b")
	pools := []string{"a", "b", "c", "d"}
	deployments := map[string]types.UID{}
	for _, pool := range pools {
		deployments[pool] = s.deploy(pool, 2).UID
	}
	s.deploy("elsewhere", 9, func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = other.Name })
	s.running("", 17)
	before := s.joined()

	s.must(s.lab.Cloud.Set(s.Context(), `{"failedZones":["sim-1a"]}`))
	s.Cleanup(func() {
		if err := s.lab.Cloud.Set(context.WithoutCancel(s.Context()), `{"failedZones":null}`); err != nil {
			s.Error(err)
		}
	})
	for _, pool := range pools {
		s.breakerOpen(pool, v1alpha1.ReasonZoneNotReady)
	}
	s.must(s.lab.Do(s.Context(), "fleet-1", harness.Stop)) // the other one takes its slots
	s.lastWord("fleet-1")
	s.settled("all machines in the dark have been so for longer than they may", func(m v1alpha1.Machine) bool {
		return m.Labels[v1alpha1.LabelName] == "elsewhere" || m.Status.CurrentStatus.Phase == v1alpha1.MachineUnknown &&
			time.Since(m.Status.CurrentStatus.LastUpdateTime.Time) > healthTimeout+20*time.Second
	})
	s.untouched(before)
	s.breakerOpen("elsewhere", "")

	s.must(s.lab.Cloud.Set(s.Context(), `{"failedZones":null}`))
	s.running("", 17)
	for _, pool := range pools {
		s.breakerOpen(pool, "")
		s.oneEvent(deployments[pool], v1alpha1.EventCircuitBreakerOpen)
		s.oneEvent(deployments[pool], v1alpha1.EventReplacementResumed)
	}
	s.untouched(before)

	victim := s.dies("a")
	s.replaced("a", victim)
	after := s.joined()
	maps.DeleteFunc(before, func(name, _ string) bool { return after[name] != "" })
	if got := slices.Collect(maps.Keys(before)); !slices.Equal(got, []string{victim.Name}) {
		s.Errorf("replaced are %v, want %s alone", got, victim.Name)
	}
	for _, pool := range append(pools, "elsewhere") {
		s.remove("machinedeployments", pool)
	}
	s.gone()
}

// machinesDie: of two machines of a MachineDeployment that die together the second is deleted only when the first is replaced. One
// whose health timeout is disabled stays, and one without a controller fails, and stays too.
func machinesDie(s *space) {
	yes := true
	const size = 7 // four of nine machines die: the circuit breaker stays closed
	s.deploy("pool", size)
	s.deploy("patient", 1, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{DisableHealthTimeout: &yes}
	})
	lone := s.createMachine(s.name + "-alone")
	s.running("", 9)
	s.joined()
	first, second := s.dies("pool"), s.dies("pool")
	patient, single := s.dies("patient"), s.diesNow(lone.Name)
	dead := map[string]bool{first.Name: true, second.Name: true}
	s.eventually("both are replaced, one after the other", func(ctx context.Context) error {
		machines, err := s.machines(ctx, "pool")
		if err != nil {
			return err
		}
		waiting, running := 0, 0
		for _, m := range machines {
			switch phase := m.Status.CurrentStatus.Phase; {
			case m.DeletionTimestamp != nil:
			case dead[m.Name] && (phase == v1alpha1.MachineRunning || phase == v1alpha1.MachineUnknown):
				waiting++
			case !dead[m.Name] && phase == v1alpha1.MachineRunning:
				running++
			}
		}
		if waiting+running < size-1 {
			s.Errorf("%d machines run and %d wait: more than one is being replaced", running, waiting)
		}
		if running < size || len(machines) > size {
			return fmt.Errorf("%d run, %d wait, %d are there", running, waiting, len(machines))
		}
		return nil
	})
	s.oneEvent(first.UID, v1alpha1.EventHealthTimedOut)
	s.oneEvent(second.UID, v1alpha1.EventHealthTimedOut)
	s.eventually("the machine without a controller has failed", func(ctx context.Context) error {
		m, err := s.api().Machines(s.name).Get(ctx, single.Name, metav1.GetOptions{})
		if err == nil && (m.Status.CurrentStatus.Phase != v1alpha1.MachineFailed || m.DeletionTimestamp != nil) {
			err = fmt.Errorf("it is %+v", m.Status.CurrentStatus)
		}
		return err
	})
	m, err := s.api().Machines(s.name).Get(s.Context(), patient.Name, metav1.GetOptions{})
	s.must(err)
	if m.UID != patient.UID || m.Status.CurrentStatus.Phase != v1alpha1.MachineUnknown {
		s.Errorf("the machine without a health timeout is %+v", m.Status.CurrentStatus)
	}
	s.remove("machinedeployments", "pool")
	s.remove("machinedeployments", "patient")
	s.remove("machines", lone.Name)
	s.gone()
}

// inZone sets the zone of the class.
func (s *space) inZone(class, zone string) {
	s.Helper()
	s.patch("machineclasses", class, fmt.Sprintf(
		`{"nodeTemplate":{"capacity":{"cpu":"4","gpu":"0","memory":"16Gi"},"instanceType":"standard-4","region":"sim-1","zone":%q}}`, zone))
}

// breakerOpen waits until the MachineDeployment reports an open circuit breaker with a reason, or, with "", that none is open.
func (s *space) breakerOpen(pool, reason string) {
	s.Helper()
	s.eventually(fmt.Sprintf("the circuit breaker of %s is open for the reason %q", pool, reason), func(ctx context.Context) error {
		d, err := s.api().MachineDeployments(s.name).Get(ctx, pool, metav1.GetOptions{})
		if err != nil {
			return err
		}
		found := ""
		for _, c := range d.Status.Conditions {
			if c.Type == v1alpha1.MachineDeploymentCircuitBreakerOpen && c.Status == corev1.ConditionTrue {
				found = c.Reason
			}
		}
		if found != reason {
			return fmt.Errorf("it is for %q", found)
		}
		return nil
	})
}

// lastWord waits until the session Lease of a replica that has ended has its last counts.
func (s *space) lastWord(replica string) {
	s.Helper()
	s.eventually(replica+" has left its last counts", func(ctx context.Context) error {
		lease, err := s.lab.Control.CoordinationV1().Leases(harness.FleetNamespace).Get(ctx, "fleet-session-"+replica, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if h := lease.Spec.HolderIdentity; h != nil && *h != "" {
			return fmt.Errorf("its Lease is held by %s", *h)
		}
		if !strings.Contains(lease.Annotations[v1alpha1.AnnotationCounts], "counts") {
			return fmt.Errorf("its Lease has %v", lease.Annotations)
		}
		return nil
	})
}

// settled waits until all machines are as expected.
func (s *space) settled(what string, is func(v1alpha1.Machine) bool) {
	s.Helper()
	s.eventually(what, func(ctx context.Context) error {
		machines, err := s.machines(ctx, "")
		if err != nil {
			return err
		}
		for _, m := range machines {
			if !is(m) {
				return fmt.Errorf("machine %s is not: %+v", m.Name, m.Status.CurrentStatus)
			}
		}
		return nil
	})
}

// untouched checks that machines and VMs are the same, and that no machine has failed.
func (s *space) untouched(before map[string]string) {
	s.Helper()
	machines, err1 := s.machines(s.Context(), "")
	vms, err2 := s.lab.Cloud.History(s.Context(), s.name)
	s.must(errors.Join(err1, err2))
	for _, m := range machines {
		if before[m.Name] != path.Base(m.Spec.ProviderID) || m.DeletionTimestamp != nil || m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed {
			s.Errorf("machine %s is another one, or has failed: %+v", m.Name, m.Status.CurrentStatus)
		}
	}
	if len(machines) != len(before) || len(vms) != len(before) {
		s.Errorf("there are %d machines, and the cloud has made %d VMs; want %d", len(machines), len(vms), len(before))
	}
}

// dies ends the VM of a running machine of the pool.
func (s *space) dies(pool string) v1alpha1.Machine {
	s.Helper()
	machines, err := s.machines(s.Context(), pool)
	s.must(err)
	vms, err := s.lab.Cloud.VMs(s.Context(), s.name)
	s.must(err)
	for _, m := range machines {
		if slices.ContainsFunc(vms, func(vm cloudapi.Instance) bool { return vm.ID == path.Base(m.Spec.ProviderID) }) {
			return s.diesNow(m.Name)
		}
	}
	s.Fatalf("no machine of %s has a VM", pool)
	return v1alpha1.Machine{}
}

func (s *space) diesNow(name string) v1alpha1.Machine {
	s.Helper()
	m, err := s.api().Machines(s.name).Get(s.Context(), name, metav1.GetOptions{})
	s.must(err)
	s.must(s.lab.Cloud.Act(s.Context(), path.Base(m.Spec.ProviderID), cloudapi.ActionDie))
	return *m
}

// replaced waits until a machine is gone and the pool has all its machines again.
func (s *space) replaced(pool string, victim v1alpha1.Machine) {
	s.Helper()
	s.eventually(victim.Name+" is gone", func(ctx context.Context) error {
		m, err := s.api().Machines(s.name).Get(ctx, victim.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("it is %+v", m.Status.CurrentStatus)
		}
		return err
	})
	d, err := s.api().MachineDeployments(s.name).Get(s.Context(), pool, metav1.GetOptions{})
	s.must(err)
	s.running(pool, int(d.Spec.Replicas))
	s.oneEvent(victim.UID, v1alpha1.EventHealthTimedOut)
}
