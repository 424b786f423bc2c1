package remediation

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

func deploymentRoots(c *Controller) (*roots[*v1alpha1.MachineDeployment], error) {
	return newRoots(c, kind[*v1alpha1.MachineDeployment]{
		name: runner.Remediation, logKey: telemetry.KeyMachineDeployment, all: c.cfg.View.Deployments, events: c.cfg.DeploymentEvents,
		isRoot: func(*v1alpha1.MachineDeployment) bool { return true },
		sets:   func(d *v1alpha1.MachineDeployment) []*v1alpha1.MachineSet { return c.cfg.View.Sets.Under(d) },
		wanted: func(d *v1alpha1.MachineDeployment) int32 { return d.Spec.Replicas },
		conditionOf: func(d *v1alpha1.MachineDeployment, of conditionType) condition {
			return machinefacts.ConditionOfDeployment(&d.Status, of)
		},
		report: func(d *v1alpha1.MachineDeployment, of conditionType, is condition, now time.Time) {
			machinefacts.SetConditionOfDeployment(&d.Status, of, is, now)
		},
	}, c.cfg.DeploymentGate, func(ns string) patch.Patcher[*v1alpha1.MachineDeployment] {
		return c.cfg.Machines.MachineDeployments(ns)
	})
}

func setRoots(c *Controller) (*roots[*v1alpha1.MachineSet], error) {
	return newRoots(c, kind[*v1alpha1.MachineSet]{
		name: runner.RemediationOfSets, logKey: telemetry.KeyMachineSet, all: c.cfg.View.Sets, events: c.cfg.SetEvents,
		isRoot: func(s *v1alpha1.MachineSet) bool { return metav1.GetControllerOfNoCopy(s) == nil },
		sets:   func(s *v1alpha1.MachineSet) []*v1alpha1.MachineSet { return []*v1alpha1.MachineSet{s} },
		wanted: func(s *v1alpha1.MachineSet) int32 { return s.Spec.Replicas },
		conditionOf: func(s *v1alpha1.MachineSet, of conditionType) condition {
			return machinefacts.ConditionOfSet(&s.Status, v1alpha1.MachineSetConditionType(of))
		},
		report: func(s *v1alpha1.MachineSet, of conditionType, is condition, now time.Time) {
			machinefacts.SetConditionOfSet(&s.Status, v1alpha1.MachineSetConditionType(of), is, now)
		},
	}, c.cfg.SetGate, func(ns string) patch.Patcher[*v1alpha1.MachineSet] { return c.cfg.Machines.MachineSets(ns) })
}
