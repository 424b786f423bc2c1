package machinefacts

import (
	"slices"
	"strings"
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

// IsTerminating reports whether the Node has the condition of a Node whose machine is being
// deleted.
func IsTerminating(n *corev1.Node) bool {
	c := NodeCondition(n, v1alpha1.NodeTerminating)
	return c != nil && c.Status == corev1.ConditionTrue
}

// MachineSetCondition returns the condition of a type of a MachineSet; nil when it has none. It may
// be changed.
func MachineSetCondition(s *v1alpha1.MachineSetStatus, t v1alpha1.MachineSetConditionType) *v1alpha1.MachineSetCondition {
	return first(s.Conditions, func(c *v1alpha1.MachineSetCondition) bool { return c.Type == t })
}

// Condition is the content of a condition of a MachineSet or a MachineDeployment. The zero value
// stands for no condition.
type Condition struct {
	Status          corev1.ConditionStatus
	Reason, Message string
}

// True returns a condition that is True.
func True(reason, message string) Condition {
	return Condition{Status: corev1.ConditionTrue, Reason: reason, Message: message}
}

// False returns a condition that is False.
func False(reason, message string) Condition {
	return Condition{Status: corev1.ConditionFalse, Reason: reason, Message: message}
}

// IsTrue reports whether the condition exists and is True.
func (c Condition) IsTrue() bool { return c.Status == corev1.ConditionTrue }

// Validity returns the condition Valid of a MachineSet or a MachineDeployment that is reconciled:
// class, which is the condition of a class of which no machine gets a VM, or else remarks on what
// works and hardly as its author expects; the zero value without both.
func Validity(class Condition, remarks []string) Condition {
	if class != (Condition{}) || len(remarks) == 0 {
		return class
	}
	return True(v1alpha1.ReasonRemarks, strings.Join(remarks, "; "))
}

// ConditionOfSet returns the content of the condition of a type of a MachineSet.
func ConditionOfSet(s *v1alpha1.MachineSetStatus, t v1alpha1.MachineSetConditionType) Condition {
	if c := MachineSetCondition(s, t); c != nil {
		return Condition{Status: c.Status, Reason: c.Reason, Message: c.Message}
	}
	return Condition{}
}

// SetConditionOfSet sets the condition of a type in the status of a MachineSet, or removes it if is
// is the zero value. The time of transition is kept while the condition's status is.
func SetConditionOfSet(s *v1alpha1.MachineSetStatus, t v1alpha1.MachineSetConditionType, is Condition, now time.Time) {
	defer standardize(s)
	old := MachineSetCondition(s, t)
	if is == (Condition{}) {
		s.Conditions = without(s.Conditions, func(c v1alpha1.MachineSetCondition) bool { return c.Type == t })
		return
	}
	c := v1alpha1.MachineSetCondition{
		Type:               t,
		Status:             is.Status,
		Reason:             is.Reason,
		Message:            bounded.Text(is.Message, bounded.Message),
		LastTransitionTime: metav1.NewTime(now),
	}
	if old == nil {
		s.Conditions = append(s.Conditions, c)
		return
	}
	if old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	*old = c
}

// standardize sets the standard conditions of a MachineSet to those that it has. One that another
// controller has written is left out if it is no valid standard condition: the API server would
// reject the whole status.
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

// MachineDeploymentCondition returns the condition of a type of a MachineDeployment; nil when it
// has none. It may be changed.
func MachineDeploymentCondition(
	s *v1alpha1.MachineDeploymentStatus, t v1alpha1.MachineDeploymentConditionType,
) *v1alpha1.MachineDeploymentCondition {
	return first(s.Conditions, func(c *v1alpha1.MachineDeploymentCondition) bool { return c.Type == t })
}

// ConditionOfDeployment returns the content of the condition of a type of a MachineDeployment.
func ConditionOfDeployment(s *v1alpha1.MachineDeploymentStatus, t v1alpha1.MachineDeploymentConditionType) Condition {
	if c := MachineDeploymentCondition(s, t); c != nil {
		return Condition{Status: c.Status, Reason: c.Reason, Message: c.Message}
	}
	return Condition{}
}

// SetConditionOfDeployment sets the condition of a type in the status of a MachineDeployment, or
// removes it if is is the zero value. The time of transition is kept while the condition's status
// is, and the time of the update while its reason is the same, too: the progress deadline counts
// from that, whichever message the condition has.
func SetConditionOfDeployment(s *v1alpha1.MachineDeploymentStatus, t v1alpha1.MachineDeploymentConditionType, is Condition, now time.Time) {
	old := MachineDeploymentCondition(s, t)
	if is == (Condition{}) {
		s.Conditions = without(s.Conditions, func(c v1alpha1.MachineDeploymentCondition) bool { return c.Type == t })
		return
	}
	c := v1alpha1.MachineDeploymentCondition{
		Type: t, Status: is.Status, Reason: is.Reason, Message: bounded.Text(is.Message, bounded.Message),
		LastUpdateTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(now),
	}
	if old == nil {
		s.Conditions = append(s.Conditions, c)
		return
	}
	if old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
		if old.Reason == c.Reason {
			c.LastUpdateTime = old.LastUpdateTime
		}
	}
	*old = c
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

// without removes the conditions that match. If none is left it returns nil, as a read from the API
// server does.
func without[C any](conditions []C, matches func(C) bool) []C {
	conditions = slices.DeleteFunc(conditions, matches)
	if len(conditions) == 0 {
		return nil
	}
	return conditions
}

// CreatesNone reports whether a set must not create machines: it is frozen, or must not be scaled
// up.
func CreatesNone(set *v1alpha1.MachineSet) bool {
	_, disabled := set.Labels[v1alpha1.LabelScaleUpDisabled]
	return disabled || IsFrozen(set)
}

// IsFrozen reports whether a set has the label freeze=True. Any other value, like true, freezes
// nothing.
func IsFrozen(set *v1alpha1.MachineSet) bool { return set.Labels[v1alpha1.LabelFreeze] == "True" }
