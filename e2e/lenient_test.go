//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/validation"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// invalid lists specs that the fleet's definitions reject and MCM's accept.
var invalid = []struct {
	name   string
	spec   func(*v1alpha1.MachineDeploymentSpec)
	reason string
}{
	{"no-selector", func(d *v1alpha1.MachineDeploymentSpec) { d.Selector = nil }, v1alpha1.ReasonSelectorMatchesNothing},
	{"selector-of-others", func(d *v1alpha1.MachineDeploymentSpec) {
		d.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelName: "right"}}
	}, v1alpha1.ReasonSelectorMatchesNothing},
	{"selector-of-all", func(d *v1alpha1.MachineDeploymentSpec) { d.Selector = &metav1.LabelSelector{} }, v1alpha1.ReasonSelectorMatchesEverything},
	{"no-class", func(d *v1alpha1.MachineDeploymentSpec) { d.Template.Spec.Class.Name = "" }, v1alpha1.ReasonInvalidSpec},
}

// lenientInvalid creates the invalid objects that only MCM's definitions allow, beside valid objects.
func (s *space) lenientInvalid() {
	s.deploy("right", 1)
	s.running("right", 1)
	for _, test := range invalid {
		d := s.deploy(test.name, 1, func(d *v1alpha1.MachineDeployment) { test.spec(&d.Spec) })
		_, err := s.api().MachineSets(s.name).Create(s.Context(), &v1alpha1.MachineSet{
			ObjectMeta: metav1.ObjectMeta{Name: test.name},
			Spec:       v1alpha1.MachineSetSpec{Replicas: 1, Selector: d.Spec.Selector, Template: d.Spec.Template},
		}, metav1.CreateOptions{})
		s.must(err)
	}
	unknown := s.deploy("unknown-strategy", 1, func(d *v1alpha1.MachineDeployment) { d.Spec.Strategy.Type = "Hope" })
	for _, test := range invalid {
		s.invalidSet(test.name, test.reason)
		s.invalidDeployment(test.name, test.reason)
	}
	s.invalidDeployment(unknown.Name, v1alpha1.ReasonInvalidSpec)

	s.createMachine(s.name+"-kindless", func(m *v1alpha1.Machine) { m.Spec.Class.Kind = "" })
	s.machineFails(s.name+"-kindless", driver.InvalidArgument, "Kind is required")
	class := s.name + "-class"
	s.createClass(class)
	s.patch("machineclasses", class, `{"secretRef":{"name":"simulated"},"nodeTemplate":{"capacity":{"cpu":"1"},"instanceType":"","region":"","zone":""}}`)
	s.createMachine(s.name+"-template", func(m *v1alpha1.Machine) { m.Spec.Class.Name = class })
	s.machineFails(s.name+"-template", driver.InvalidArgument, "gpu")

	// No object was created for them or taken from others, and they cause no requests.
	s.scale("right", 2)
	s.running("right", 2)
	s.reports("right", 2)
	machines, err := s.machines(s.Context(), "")
	s.must(err)
	if len(machines) != 4 {
		s.Errorf("want two machines that run and two that fail, got %d", len(machines))
	}
	s.idle(12 * time.Second)

	// Corrected objects are reconciled.
	s.patch("machinedeployments", "no-selector", `{"spec":{"selector":{"matchLabels":{"name":"no-selector"}}}}`)
	s.running("no-selector", 1)
	s.reports("no-selector", 1)
}

// invalidDeployment waits until a MachineDeployment and an Event report what is invalid.
func (s *space) invalidDeployment(name, reason string) {
	s.Helper()
	var about *v1alpha1.MachineDeployment
	s.eventually("MachineDeployment "+name+" reports that it is invalid", func(ctx context.Context) error {
		d, err := s.api().MachineDeployments(s.name).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range d.Status.Conditions {
			if c.Type == v1alpha1.MachineDeploymentValid && c.Status == corev1.ConditionFalse && c.Reason == reason && c.Message != "" {
				about = d
				return nil
			}
		}
		return fmt.Errorf("want reason %s, conditions are %v", reason, d.Status.Conditions)
	})
	s.emitted(about, validation.EventReason(reason), "")
}

// invalidSet waits until a MachineSet and an Event report what is invalid.
func (s *space) invalidSet(name, reason string) {
	s.Helper()
	var about *v1alpha1.MachineSet
	s.eventually("MachineSet "+name+" reports that it is invalid", func(ctx context.Context) error {
		set, err := s.api().MachineSets(s.name).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range set.Status.Conditions {
			if c.Type == v1alpha1.MachineSetValid && c.Status == corev1.ConditionFalse && c.Reason == reason && c.Message != "" {
				about = set
				return nil
			}
		}
		return fmt.Errorf("want reason %s, conditions are %v", reason, set.Status.Conditions)
	})
	s.emitted(about, validation.EventReason(reason), "")
}
