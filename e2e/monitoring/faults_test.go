//go:build e2e

package monitoring

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// Zones of the cloud, each with one fault of the cloud; the default one has none.
const (
	zoneFull  = "sim-1b" // the quota is used up
	zoneStuck = "sim-1c" // no VM is deleted
)

// The first word of the names of all alerts.
const prefix = "MachineControllerFleet"

// fault is something that goes wrong, and the alerts that fire because of it, without prefix.
// Alerts about one object or provider may have its name after theirs, so that those of other faults
// do not count.
type fault struct {
	name   string
	alerts []string
	// run causes it, and returns what ends it; nil: nothing has to.
	run func(s *scene) (end func())
}

// manyMachines is more than the objectives forgive.
const manyMachines = 20

// massOfMachines is more than are deleted without an alert.
const massOfMachines = 40

// slowMachines are so much work that their replica has more than its share, regardless of the roots
// of other faults the other replicas have.
const slowMachines = 10 * syncs

// unreachedRoots are so many MachineDeployments that each replica holds the slots of some.
const unreachedRoots = 24

// ofTenants are faults of single namespaces and zones. Each has its own namespace, so that all
// run at the same time.
func ofTenants() []fault {
	return []fault{
		{"VMs do not join", []string{"MachinesDoNotJoin", "JoinSLO"}, func(s *scene) func() {
			s.must(s.lab.Prepare(s.ctx, "no-join", ""))
			// Without a token a VM boots and never joins.
			_, err := s.lab.Control.CoreV1().Secrets("no-join").Patch(s.ctx, harness.ClassName, types.MergePatchType,
				[]byte(`{"stringData":{"userData":"#!/bin/sh"}}`), metav1.PatchOptions{})
			s.must(err)
			s.deploy("no-join", "pool", manyMachines)
			return nil
		}},
		{"the quota is used up", []string{"MachinesNotCreated simulated", "CloudErrors simulated"}, func(s *scene) func() {
			s.must(s.lab.Prepare(s.ctx, "no-quota", `{"zone":"`+zoneFull+`"}`))
			s.deploy("no-quota", "pool", 5)
			return nil
		}},
		{"VMs are not deleted", []string{"MachinesNotDeleted"}, func(s *scene) func() {
			s.must(s.lab.Prepare(s.ctx, "not-deleted", `{"zone":"`+zoneStuck+`"}`))
			s.deploy("not-deleted", "pool", manyMachines)
			s.must(s.lab.Running(s.ctx, "not-deleted", manyMachines))
			s.must(s.lab.ScaleDeployment(s.ctx, "not-deleted", "pool", 0))
			return nil
		}},
		{"a rollout has a class that does not exist", []string{"RolloutStalled stalled"}, func(s *scene) func() {
			s.must(s.lab.Prepare(s.ctx, "stalled", ""))
			s.deploy("stalled", "stalled", 2)
			s.must(s.lab.Running(s.ctx, "stalled", 2))
			s.patch("stalled", "stalled", `{"spec":{"template":{"spec":{"class":{"name":"missing"}}}}}`)
			return nil
		}},
		{"most machines of a zone are not Ready", []string{"CircuitBreakerOpen"}, func(s *scene) func() {
			s.must(s.lab.Prepare(s.ctx, "not-ready", ""))
			s.annotate("not-ready", v1alpha1.AnnotationCircuitBreaker, "not-ready=2,percent=2,close-percent=1")
			s.deploy("not-ready", "pool", 3)
			s.must(s.lab.Running(s.ctx, "not-ready", 3))
			vms, err := s.lab.Cloud.VMs(s.ctx, "not-ready")
			s.must(err)
			for _, vm := range vms {
				s.must(s.lab.Cloud.Act(s.ctx, vm.ID, cloudapi.ActionLoseReady))
			}
			return nil
		}},
		{"deletions are held", []string{"DeletionsHeld", "ReceiptsLost"}, func(s *scene) func() {
			s.runs("hold", 3)
			s.must(s.lab.ScaleDeployment(s.ctx, "hold", "pool", 2)) // its receipt cannot be written
			s.must(s.lab.Running(s.ctx, "hold", 2))
			s.annotate("hold", v1alpha1.AnnotationHoldDeletions, "test")
			s.must(s.lab.ScaleDeployment(s.ctx, "hold", "pool", 1))
			return nil
		}},
		{"all machines of a tenant are deleted", []string{"MassDeletion"}, func(s *scene) func() {
			s.runs("mass", massOfMachines)
			s.must(s.lab.ScaleDeployment(s.ctx, "mass", "pool", 0))
			return nil
		}},
		{"a MachineSet is frozen", []string{"CreatesNoMachines"}, func(s *scene) func() {
			s.runs("frozen", 1)
			_, err := s.lab.Kubectl(s.ctx, "-n", "frozen", "label", "mcs", "--all", "freeze=True")
			s.must(err)
			return nil
		}},
		{"orphans are more than may be deleted", []string{"OrphansHeld"}, func(s *scene) func() {
			s.must(s.lab.Prepare(s.ctx, "orphans", ""))
			s.orphan("orphans", "orphan-a")
			s.orphan("orphans", "orphan-b")
			return nil
		}},
		{"a machine without a class keeps orphans", []string{"OrphansSuspected"}, func(s *scene) func() {
			s.must(s.lab.Prepare(s.ctx, "suspected", ""))
			s.deploy("suspected", "pool", 1, func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "missing" })
			s.orphan("suspected", "orphan-c")
			return nil
		}},
		{"an object does not decode", []string{"ObjectsUndecodable"}, func(s *scene) func() {
			s.must(s.lab.Prepare(s.ctx, "undecodable", ""))
			s.apply(`{apiVersion: machine.sapcloud.io/v1alpha1, kind: Machine, metadata: {name: undecodable, namespace: undecodable},
				spec: {class: {kind: MachineClass, name: ` + harness.ClassName + `}, drainTimeout: soon}}`)
			return nil
		}},
		{"another controller serves a namespace", []string{"NamespacesRefused", "ObjectsUnlabeled"}, func(s *scene) func() {
			s.namespaceOfAnother("refused")
			s.deploy("refused", "pool", 1)
			return nil
		}},
		{"a policy refuses the slot label", []string{"KeysFail"}, func(s *scene) func() {
			s.must(s.lab.Prepare(s.ctx, "stuck", ""))
			s.deploy("stuck", "probe", 0)
			s.apply(refusal)
			deployments := s.lab.Machines.MachineV1alpha1().MachineDeployments("stuck")
			s.eventually("the API server refuses changes", func(ctx context.Context) error {
				_, err := deployments.Patch(ctx, "probe", types.MergePatchType, []byte(`{"metadata":{"annotations":{"probe":"1"}}}`),
					metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
				if err == nil {
					return errors.New("it accepts one")
				}
				return nil
			})
			s.deploy("stuck", "pool", 1)
			return nil
		}},
	}
}

// refused is in the message of the policy that refuses.
const refused = "refused by the test"

// refusal has the API server refuse changes of MachineDeployments.
const refusal = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: stuck}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: stuck}}
    resourceRules: [{apiGroups: [machine.sapcloud.io], apiVersions: ["*"], operations: [UPDATE], resources: [machinedeployments]}]
  validations: [{expression: "false", message: ` + refused + `}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: stuck}
spec: {policyName: stuck, validationActions: [Deny]}
`

// ofFleet are faults that affect all of the fleet or the cloud. They run one after the other.
func ofFleet() []fault {
	return []fault{
		{"VMs are deleted late", []string{"DeletionSLO"}, func(s *scene) func() {
			s.runs("late", manyMachines)
			s.clouds(`{"faults":[{"operations":["DeleteInstance"],"kind":"unavailable","rate":1}]}`)
			s.must(s.lab.ScaleDeployment(s.ctx, "late", "pool", 0))
			s.rest(deletionBound + 5*time.Second)
			s.clouds(`{"faults":null}`)
			return nil
		}},
		{"the cloud throttles lists", []string{"OrphanSweepsFail", "Throttled simulated"}, func(s *scene) func() {
			s.clouds(`{"faults":[{"operations":["ListInstances"],"kind":"throttled","rate":1,"retryAfter":"1s"}]}`)
			return func() { s.clouds(`{"faults":null}`) }
		}},
		{"creates take long, and are all of one root", []string{"KeysWait", "Imbalance"}, func(s *scene) func() {
			s.must(s.lab.Prepare(s.ctx, "slow", ""))
			s.clouds(`{"latency":{"CreateInstance":{"mean":"30s"}}}`)
			s.deploy("slow", "pool", slowMachines)
			return func() {
				s.clouds(`{"latency":{"CreateInstance":{"mean":"200ms"}}}`)
				s.must(s.lab.ScaleDeployment(s.ctx, "slow", "pool", 0))
			}
		}},
		{"a replica is started without the target cluster", []string{"SlotsNotOpen", "ReplicaUnfit", "APIServerAway"}, func(s *scene) func() {
			_, followers := s.roles()
			s.must(s.lab.SetFault(s.ctx, followers[0], harness.LinkTarget, harness.Cut(harness.Both)))
			s.must(s.lab.Do(s.ctx, followers[0], harness.Crash))
			return func() { s.must(s.lab.Heal(s.ctx, followers[0])) }
		}},
		{"a replica loses the cloud", []string{"AccountUnreached"}, func(s *scene) func() {
			_, followers := s.roles()
			s.must(s.lab.Prepare(s.ctx, "unreached", ""))
			s.works(followers[0])
			s.must(s.lab.SetFault(s.ctx, followers[0], harness.LinkCloud, harness.Cut(harness.Both)))
			for i := range unreachedRoots {
				s.deploy("unreached", fmt.Sprint("pool-", i), 1)
			}
			return func() { s.must(s.lab.Heal(s.ctx, followers[0])) }
		}},
		{"a replica loses the control cluster", []string{"ReplicaSuspended"}, func(s *scene) func() {
			_, followers := s.roles()
			s.must(s.lab.SetFault(s.ctx, followers[0], harness.LinkControl, harness.Cut(harness.Both)))
			return func() { s.must(s.lab.Heal(s.ctx, followers[0])) }
		}},
		{"a replica loses the control cluster for seconds, three times", []string{"FenceTrips"}, func(s *scene) func() {
			_, followers := s.roles()
			for trips := 0.0; trips < 3; { // a process that was cut off for too long ends, and its count with it
				s.works(followers[0])
				s.must(s.lab.SetFault(s.ctx, followers[0], harness.LinkControl, harness.Cut(harness.Both)))
				s.suspended(followers[0], 1)
				s.must(s.lab.Heal(s.ctx, followers[0]))
				s.suspended(followers[0], 0)
				var err error
				trips, err = s.lab.Metric(s.ctx, followers[0], "mcf_suspensions_total")
				s.must(err)
			}
			return nil
		}},
		{"the leader dies", []string{"NoLeader"}, func(s *scene) func() {
			leader, _ := s.roles()
			s.must(s.lab.Do(s.ctx, leader, harness.Kill))
			return func() { s.must(s.lab.Do(s.ctx, leader, harness.Start)) }
		}},
		{"the Leases of all slots are deleted", []string{"SlotsUnowned", "OwnershipSLO"}, func(s *scene) func() {
			s.must(s.lab.Control.CoordinationV1().Leases(harness.FleetNamespace).DeleteCollection(s.ctx, metav1.DeleteOptions{},
				metav1.ListOptions{LabelSelector: v1alpha1.LabelLease + "=" + v1alpha1.LeaseOfSlot}))
			return nil
		}},
		{"all replicas die", []string{"Down"}, func(s *scene) func() {
			all, err := s.lab.Replicas(s.ctx)
			s.must(err)
			for _, replica := range all {
				s.must(s.lab.Do(s.ctx, replica, harness.Kill))
			}
			return func() {
				for _, replica := range all {
					s.must(s.lab.Do(s.ctx, replica, harness.Start))
				}
			}
		}},
	}
}

// ofTargets are faults of target clusters in a landscape of five. They run one after the other.
func ofTargets() []fault {
	return []fault{
		{"a Secret is deleted", []string{"TargetUnavailable"}, func(s *scene) func() {
			s.must(s.lab.Control.CoreV1().Secrets("light-1").Delete(s.ctx, "machine-controller-fleet-target", metav1.DeleteOptions{}))
			return func() { s.must(s.lab.Rotate(s.ctx, "light-1")) }
		}},
		{"most API servers are cut off", []string{"ManyTargetsUnavailable"}, func(s *scene) func() {
			members := []string{"light-2", "light-3", "light-4"}
			for _, m := range members {
				s.must(s.lab.SetFault(s.ctx, m, harness.LinkServer, harness.Refuse()))
			}
			return func() {
				for _, m := range members {
					s.must(s.lab.SetFault(s.ctx, m, harness.LinkServer, harness.Fault{}))
				}
			}
		}},
	}
}

// runs creates a namespace with a MachineDeployment whose machines run.
func (s *scene) runs(namespace string, machines int32) {
	s.Helper()
	s.must(s.lab.Prepare(s.ctx, namespace, ""))
	s.deploy(namespace, "pool", machines)
	s.must(s.lab.Running(s.ctx, namespace, int(machines)))
}

// annotate annotates a Namespace.
func (s *scene) annotate(namespace, annotation, value string) {
	s.Helper()
	_, err := s.lab.Kubectl(s.ctx, "annotate", "namespace", namespace, annotation+"="+value)
	s.must(err)
}

// clouds changes the settings of the cloud.
func (s *scene) clouds(patch string) {
	s.Helper()
	s.must(s.lab.Cloud.Set(s.ctx, patch))
}

// namespaceOfAnother creates a namespace that another controller serves.
func (s *scene) namespaceOfAnother(name string) {
	s.Helper()
	_, err := s.lab.Control.CoreV1().Namespaces().Create(s.ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	s.must(err)
	holder, seconds := "another", int32(time.Hour/time.Second)
	_, err = s.lab.Control.CoordinationV1().Leases(name).Create(s.ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "machine-controller"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds},
	}, metav1.CreateOptions{})
	s.must(err)
}

// works waits until a replica works on slots, regardless of the faults before: one that
// was unfit holds none at first, and one that was suspended for long is about to end.
func (s *scene) works(replica string) {
	s.Helper()
	s.suspended(replica, 0)
	s.eventually(replica+" holds slots", func(ctx context.Context) error {
		slots, err := s.lab.Metric(ctx, replica, "mcf_owned_slots")
		if err == nil && slots == 0 {
			err = errors.New("it does not yet")
		}
		return err
	})
}

// suspended waits until a replica is suspended (1), or is not (0).
func (s *scene) suspended(replica string, want float64) {
	s.Helper()
	s.eventually(fmt.Sprintf("%s has mcf_suspended %g", replica, want), func(ctx context.Context) error {
		is, err := s.lab.Metric(ctx, replica, "mcf_suspended")
		if err == nil && is != want {
			err = errors.New("it does not yet")
		}
		return err
	})
}
