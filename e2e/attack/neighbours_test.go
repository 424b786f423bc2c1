//go:build e2e

package attack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// neighbour creates another namespace with a MachineDeployment of one running machine.
func (a *tenant) neighbour(providerSpec string) (namespace string, m *v1alpha1.Machine) {
	a.Helper()
	namespace = "next-to-" + a.namespace
	a.must(a.lab.Prepare(a.ctx, namespace, providerSpec))
	_, err := a.lab.Machines.MachineV1alpha1().MachineDeployments(namespace).Create(a.ctx,
		harness.Deployment(namespace, "pool", 1), metav1.CreateOptions{})
	a.must(err)
	a.must(a.lab.Running(a.ctx, namespace, 1))
	return namespace, &a.machinesOf(namespace)[0]
}

func (a *tenant) machinesOf(namespace string) []v1alpha1.Machine {
	a.Helper()
	list, err := a.lab.Machines.MachineV1alpha1().Machines(namespace).List(a.ctx, metav1.ListOptions{})
	a.must(err)
	return list.Items
}

// deadMachinesOfOneTenant ends eight machines of a zone. Another namespace has one there that ends,
// too, and is replaced.
func deadMachinesOfOneTenant(a *tenant) {
	const zone, dead = `{"zone":"sim-1b"}`, 8
	class, err := a.api.MachineClasses(a.namespace).Get(a.ctx, harness.ClassName, metav1.GetOptions{})
	a.must(err)
	class.ProviderSpec.Raw = []byte(zone)
	_, err = a.api.MachineClasses(a.namespace).Update(a.ctx, class, metav1.UpdateOptions{})
	a.must(err)
	a.deploy("pool", dead)
	namespace, m := a.neighbour(zone)
	a.must(a.lab.Running(a.ctx, a.namespace, dead))
	for _, of := range a.machinesOf(a.namespace) {
		a.must(a.lab.Cloud.Act(a.ctx, path.Base(of.Spec.ProviderID), cloudapi.ActionLoseReady))
	}
	a.eventually("the circuit breaker is open in the namespace concerned", func(ctx context.Context) error {
		d, err := a.api.MachineDeployments(a.namespace).Get(ctx, "pool", metav1.GetOptions{})
		if err == nil && !slices.ContainsFunc(d.Status.Conditions, func(c v1alpha1.MachineDeploymentCondition) bool {
			return c.Type == v1alpha1.MachineDeploymentCircuitBreakerOpen
		}) {
			err = fmt.Errorf("its conditions are %+v", d.Status.Conditions)
		}
		return err
	})
	a.must(a.lab.Cloud.Act(a.ctx, path.Base(m.Spec.ProviderID), cloudapi.ActionLoseReady))
	begin := time.Now()
	a.eventually("the machine of the other namespace is replaced", func(context.Context) error {
		for _, now := range a.machinesOf(namespace) {
			if now.Name != m.Name && now.Status.CurrentStatus.Phase == v1alpha1.MachineRunning {
				return nil
			}
		}
		return errors.New("none runs but the first")
	})
	a.Logf("the machine of the other namespace was replaced after %s", time.Since(begin).Round(time.Millisecond))
}

// forgedOwnerReferences creates Machines that name a MachineSet of another namespace as their
// owner, and stay. That can be deleted nevertheless.
func forgedOwnerReferences(a *tenant) {
	namespace, of := a.neighbour("")
	owner, labels := *metav1.GetControllerOf(of), maps.Clone(of.Labels)
	delete(labels, v1alpha1.LabelSlot) // only the fleet may write it
	for i := range 5 {
		a.machine(fmt.Sprint("forged-", i), "no-class", func(m *v1alpha1.Machine) {
			m.OwnerReferences = []metav1.OwnerReference{owner}
			m.Labels = labels
			m.Finalizers = []string{"example.com/hold"}
		})
	}
	deployments := a.lab.Machines.MachineV1alpha1().MachineDeployments(namespace)
	a.must(deployments.Delete(a.ctx, "pool", metav1.DeleteOptions{}))
	a.eventually("nothing is left of the other namespace", func(ctx context.Context) error {
		sets, err := a.lab.Machines.MachineV1alpha1().MachineSets(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		_, err = deployments.Get(ctx, "pool", metav1.GetOptions{})
		if err == nil {
			return errors.New("the MachineDeployment still exists")
		}
		if machines := a.machinesOf(namespace); len(sets.Items)+len(machines) > 0 {
			return fmt.Errorf("there are %d sets and %d machines", len(sets.Items), len(machines))
		}
		return notFound(err)
	})
	if remaining := a.machinesOf(a.namespace); len(remaining) != 5 {
		a.Errorf("of the forged machines %d are left: they did not block a deletion", len(remaining))
	}
}

// cloudThatNeverAnswers creates a hundred machines whose cloud does not answer. They use their
// share of each replica, and a machine of another namespace is created meanwhile.
func cloudThatNeverAnswers(a *tenant) {
	const many = 100
	namespace, _ := a.neighbour("")
	before := a.timeToRun(namespace, "before")
	a.class("silent", a.cloud.endpoint("silent"))
	a.deploy("pool", many, func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "silent" })
	a.eventually("requests wait for the cloud", func(context.Context) error {
		if n := a.cloud.atATime(); n < concurrentSyncs { // of one replica, at least
			return fmt.Errorf("%d requests wait", n)
		}
		return nil
	})
	during := a.timeToRun(namespace, "during")
	a.Logf("a machine of another namespace ran after %s before, and %s while %d requests of %d machines waited for their cloud",
		before, during, a.cloud.atATime(), many)
	if n := a.cloud.atATime(); n > replicas*concurrentSyncs {
		a.Errorf("%d requests of one namespace waited at a time, want at most %d", n, replicas*concurrentSyncs)
	}
}

// timeToRun creates a machine and returns how long it takes until it runs.
func (a *tenant) timeToRun(namespace, name string) time.Duration {
	a.Helper()
	api := a.lab.Machines.MachineV1alpha1().Machines(namespace)
	begin := time.Now()
	_, err := api.Create(a.ctx, &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-" + namespace},
		Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: harness.ClassName}},
	}, metav1.CreateOptions{})
	a.must(err)
	a.eventually("machine "+name+" runs", func(ctx context.Context) error {
		m, err := api.Get(ctx, name+"-"+namespace, metav1.GetOptions{})
		if err == nil && m.Status.CurrentStatus.Phase != v1alpha1.MachineRunning {
			err = fmt.Errorf("its status is %+v", m.Status)
		}
		return err
	})
	return time.Since(begin).Round(time.Millisecond)
}
