package machinefacts

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
)

// NodeCondition returns the condition of a type of a Node; nil when it has none. It may be changed.
func NodeCondition(n *corev1.Node, t corev1.NodeConditionType) *corev1.NodeCondition {
	return first(n.Status.Conditions, func(c *corev1.NodeCondition) bool { return c.Type == t })
}

// IsTerminating reports whether the Node has the condition of a Node whose machine is being deleted.
func IsTerminating(n *corev1.Node) bool {
	c := NodeCondition(n, v1alpha1.NodeTerminating)
	return c != nil && c.Status == corev1.ConditionTrue
}

// MachineSetCondition returns the condition of a type of a MachineSet; nil when it has none. It may be changed.
func MachineSetCondition(s *v1alpha1.MachineSetStatus, t v1alpha1.MachineSetConditionType) *v1alpha1.MachineSetCondition {
	return first(s.Conditions, func(c *v1alpha1.MachineSetCondition) bool { return c.Type == t })
}

// PutMachineSetCondition adds a condition to the status of a MachineSet, or replaces the one of its type. The time of transition is kept
// while the condition's status is.
func PutMachineSetCondition(s *v1alpha1.MachineSetStatus, c v1alpha1.MachineSetCondition, now time.Time) {
	defer standardize(s)
	c.LastTransitionTime, c.Message = metav1.NewTime(now), bounded.Text(c.Message, bounded.Message)
	old := MachineSetCondition(s, c.Type)
	if old == nil {
		s.Conditions = append(s.Conditions, c)
		return
	}
	if old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	*old = c
}

// DropMachineSetCondition removes the condition of a type from the status of a MachineSet.
func DropMachineSetCondition(s *v1alpha1.MachineSetStatus, t v1alpha1.MachineSetConditionType) {
	s.Conditions = without(s.Conditions, func(c v1alpha1.MachineSetCondition) bool { return c.Type == t })
	standardize(s)
}

// standardize makes the standard conditions of a MachineSet those that it has. One that another controller has written is left out if it is no
// valid standard condition: the API server would reject the whole status.
func standardize(s *v1alpha1.MachineSetStatus) {
	s.StandardConditions = nil
	for _, c := range s.Conditions {
		standard := metav1.Condition{
			Type: string(c.Type), Status: metav1.ConditionStatus(c.Status), ObservedGeneration: s.ObservedGeneration,
			LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
		}
		if all := append(slices.Clip(s.StandardConditions), standard); len(validation.ValidateConditions(all, nil)) == 0 {
			s.StandardConditions = all
		}
	}
}

// MachineDeploymentCondition returns the condition of a type of a MachineDeployment; nil when it has none. It may be changed.
func MachineDeploymentCondition(s *v1alpha1.MachineDeploymentStatus, t v1alpha1.MachineDeploymentConditionType) *v1alpha1.MachineDeploymentCondition {
	return first(s.Conditions, func(c *v1alpha1.MachineDeploymentCondition) bool { return c.Type == t })
}

// PutMachineDeploymentCondition adds a condition to the status of a MachineDeployment, or replaces the one of its type, and reports whether
// its status or reason has changed. The time of transition is kept while the condition's status is, and the time of the update
// while its reason is the same, too: the progress deadline counts from that, whatever the message says.
func PutMachineDeploymentCondition(s *v1alpha1.MachineDeploymentStatus, c v1alpha1.MachineDeploymentCondition, now time.Time) (changed bool) {
	c.LastUpdateTime, c.LastTransitionTime = metav1.NewTime(now), metav1.NewTime(now)
	c.Message = bounded.Text(c.Message, bounded.Message)
	old := MachineDeploymentCondition(s, c.Type)
	if old == nil {
		s.Conditions = append(s.Conditions, c)
		return true
	}
	if old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	changed = old.Status != c.Status || old.Reason != c.Reason
	if !changed {
		c.LastUpdateTime = old.LastUpdateTime
	}
	*old = c
	return changed
}

// DropMachineDeploymentCondition removes the condition of a type from the status of a MachineDeployment.
func DropMachineDeploymentCondition(s *v1alpha1.MachineDeploymentStatus, t v1alpha1.MachineDeploymentConditionType) {
	s.Conditions = without(s.Conditions, func(c v1alpha1.MachineDeploymentCondition) bool { return c.Type == t })
}

// first returns the first condition that matches; nil when none does.
func first[C any](conditions []C, matches func(*C) bool) *C {
	for i := range conditions {
		if matches(&conditions[i]) {
			return &conditions[i]
		}
	}
	return nil
}

// without removes the conditions that match. If none is left it returns nil, as a read from the API server does.
func without[C any](conditions []C, matches func(C) bool) []C {
	conditions = slices.DeleteFunc(conditions, matches)
	if len(conditions) == 0 {
		return nil
	}
	return conditions
}
