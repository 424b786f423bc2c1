package remediation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/telemetry"
)

func deploymentRoots(c *Controller) (*roots[*v1alpha1.MachineDeployment], error) {
	return newRoots(c, kind[*v1alpha1.MachineDeployment]{
		name: Name, logKey: telemetry.KeyMachineDeployment, all: c.cfg.View.Deployments, events: c.cfg.DeploymentEvents,
		isRoot:   func(*v1alpha1.MachineDeployment) bool { return true },
		sets:     func(d *v1alpha1.MachineDeployment) []*v1alpha1.MachineSet { return c.cfg.View.Sets.Under(d) },
		wanted:   func(d *v1alpha1.MachineDeployment) int32 { return d.Spec.Replicas },
		reported: reportedByDeployment, report: reportOnDeployment, isAway: isDeploymentAway, setAway: setDeploymentAway,
		held: heldByDeployment, reportHeld: reportHeldOnDeployment,
	}, c.cfg.DeploymentGate, func(ns string) patch.Patcher[*v1alpha1.MachineDeployment] {
		return c.cfg.Machines.MachineDeployments(ns)
	})
}

func setRoots(c *Controller) (*roots[*v1alpha1.MachineSet], error) {
	return newRoots(c, kind[*v1alpha1.MachineSet]{
		name: NameOfSets, logKey: telemetry.KeyMachineSet, all: c.cfg.View.Sets, events: c.cfg.SetEvents,
		isRoot:   func(s *v1alpha1.MachineSet) bool { return metav1.GetControllerOfNoCopy(s) == nil },
		sets:     func(s *v1alpha1.MachineSet) []*v1alpha1.MachineSet { return []*v1alpha1.MachineSet{s} },
		wanted:   func(s *v1alpha1.MachineSet) int32 { return s.Spec.Replicas },
		reported: reportedBySet, report: reportOnSet, isAway: isSetAway, setAway: setSetAway,
		held: heldBySet, reportHeld: reportHeldOnSet,
	}, c.cfg.SetGate, func(ns string) patch.Patcher[*v1alpha1.MachineSet] { return c.cfg.Machines.MachineSets(ns) })
}

// condition is the content of the condition CircuitBreakerOpen of a root. The zero value means that it has none.
type condition struct {
	open            bool
	reason, message string
}

func (c condition) status() corev1.ConditionStatus {
	if c.open {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

// conditionOf returns the condition of a root with open circuit breakers, by its thresholds. ignored is why an annotation with others
// is ignored; "" if none is.
func conditionOf(open []disruption.Scope, t disruption.Thresholds, ignored string) condition {
	switch {
	case len(open) == 0 && ignored == "":
		return condition{}
	case len(open) == 0:
		return condition{reason: v1alpha1.ReasonThresholdsIgnored, message: ignored}
	}
	is := condition{open: true, reason: reasonOf(open), message: message(open, t)}
	if ignored != "" {
		is.message += ". " + ignored
	}
	return is
}

func reportedByDeployment(d *v1alpha1.MachineDeployment) condition {
	c := machinefacts.MachineDeploymentCondition(&d.Status, v1alpha1.MachineDeploymentCircuitBreakerOpen)
	if c == nil {
		return condition{}
	}
	return condition{open: c.Status == corev1.ConditionTrue, reason: c.Reason, message: c.Message}
}

func reportOnDeployment(d *v1alpha1.MachineDeployment, now time.Time, is condition) {
	if is == (condition{}) {
		machinefacts.DropMachineDeploymentCondition(&d.Status, v1alpha1.MachineDeploymentCircuitBreakerOpen)
		return
	}
	machinefacts.PutMachineDeploymentCondition(&d.Status, v1alpha1.MachineDeploymentCondition{
		Type: v1alpha1.MachineDeploymentCircuitBreakerOpen, Status: is.status(), Reason: is.reason, Message: is.message,
	}, now)
}

func reportedBySet(s *v1alpha1.MachineSet) condition {
	c := machinefacts.MachineSetCondition(&s.Status, v1alpha1.MachineSetCircuitBreakerOpen)
	if c == nil {
		return condition{}
	}
	return condition{open: c.Status == corev1.ConditionTrue, reason: c.Reason, message: c.Message}
}

func reportOnSet(s *v1alpha1.MachineSet, now time.Time, is condition) {
	if is == (condition{}) {
		machinefacts.DropMachineSetCondition(&s.Status, v1alpha1.MachineSetCircuitBreakerOpen)
		return
	}
	machinefacts.PutMachineSetCondition(&s.Status, v1alpha1.MachineSetCondition{
		Type: v1alpha1.MachineSetCircuitBreakerOpen, Status: is.status(), Reason: is.reason, Message: is.message,
	}, now)
}

// reasonOf returns the reason for the open circuit breakers of a root.
func reasonOf(open []disruption.Scope) string {
	if slices.ContainsFunc(open, func(s disruption.Scope) bool { return s.Zone == "" }) {
		return v1alpha1.ReasonTargetNotReady
	}
	return v1alpha1.ReasonZoneNotReady
}

// message returns the message of the condition, with the scopes and when they close. It has no numbers of machines, which change often.
func message(open []disruption.Scope, t disruption.Thresholds) string {
	names := make([]string, len(open))
	for i, scope := range open {
		names[i] = scope.String()
	}
	text := fmt.Sprintf("Unhealthy machines in %s are not replaced: at least %d machines, and more than %d %% of them, were not Ready there. They are replaced again when less than %d %% have not been Ready for %s",
		strings.Join(names, ", "), t.NotReady, t.Percent, t.ClosePercent, t.CloseAfter)
	if t.TryAfter > 0 {
		text += fmt.Sprintf("; until then, one after the other, those that have waited for %s", t.TryAfter)
	}
	return text
}

// numbers returns the part of an Event with the numbers of machines that are not Ready.
func numbers(open []disruption.Scope, standing disruption.Snapshot) string {
	parts := make([]string, len(open))
	for i, scope := range open {
		n := standing.Open[scope]
		scope.Namespace = "" // the count is of all namespaces
		parts[i] = fmt.Sprintf("%d of %d machines in %s are not Ready", n.NotReady, n.Ready+n.NotReady, scope)
	}
	return strings.Join(parts, ", ")
}
