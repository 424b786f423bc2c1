package nodesync

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Rollout contains what Nodes carry while the machines of their deployment are replaced.
type Rollout struct {
	// PreferNoSchedule has the scheduler avoid the Node for new pods.
	PreferNoSchedule bool
	// Autoscaler is the change of the annotation that prevents the cluster-autoscaler from removing
	// the Node.
	Autoscaler Autoscaler
	// IsOld reports whether the set is an old one, whose machines are replaced: what an update in
	// place has put there stays on the Node until its machine has another set.
	IsOld bool
}

// Autoscaler is a change of the annotation that prevents the cluster-autoscaler from removing a
// Node.
type Autoscaler int

// The values. AutoscalerAsIs is the zero value: no change.
const (
	AutoscalerAsIs Autoscaler = iota
	// AutoscalerKept adds the annotation.
	AutoscalerKept
	// AutoscalerFree removes the annotation. One that a user has set stays.
	AutoscalerFree
)

// RolloutOf returns what the Nodes of a set's machines must carry.
func RolloutOf(set *v1alpha1.MachineSet) Rollout {
	m := Rollout{PreferNoSchedule: set.Annotations[v1alpha1.AnnotationPreferNoSchedule] == v1alpha1.PreferNoScheduleTrue}
	_, isClosed := set.Labels[v1alpha1.LabelScaleUpDisabled]
	m.IsOld = isClosed || m.PreferNoSchedule
	switch set.Annotations[v1alpha1.AnnotationRolling] {
	case v1alpha1.RollingTrue:
		m.Autoscaler = AutoscalerKept
	case v1alpha1.RollingFalse:
		m.Autoscaler = AutoscalerFree
	}
	return m
}

// apply adds that to a Node, and removes what is not desired.
func (r Rollout) apply(n *corev1.Node) {
	taint := corev1.Taint{
		Key: v1alpha1.TaintPreferNoSchedule, Value: v1alpha1.PreferNoScheduleTrue, Effect: corev1.TaintEffectPreferNoSchedule,
	}
	switch i := find(n.Spec.Taints, taint); {
	case r.PreferNoSchedule && i < 0:
		n.Spec.Taints = append(n.Spec.Taints, taint)
	case !r.PreferNoSchedule && i >= 0:
		n.Spec.Taints = slices.Delete(n.Spec.Taints, i, i+1)
	}
	switch r.Autoscaler {
	case AutoscalerAsIs:
	case AutoscalerKept:
		KeepFromAutoscaler(n)
	case AutoscalerFree:
		LeaveToAutoscaler(n)
	}
}

// KeepFromAutoscaler sets the annotation for the autoscaler, and another that records that the
// fleet has set it. One that a user has set is the user's, and is not removed when the fleet no
// longer needs it.
func KeepFromAutoscaler(n *corev1.Node) {
	if n.Annotations[v1alpha1.AnnotationScaleDownDisabled] == "true" {
		return
	}
	n.Annotations = orEmpty(n.Annotations)
	n.Annotations[v1alpha1.AnnotationScaleDownDisabled] = "true"
	n.Annotations[v1alpha1.AnnotationScaleDownDisabledByUs] = "true"
}

// LeaveToAutoscaler removes the annotation that KeepFromAutoscaler has set.
func LeaveToAutoscaler(n *corev1.Node) {
	if n.Annotations[v1alpha1.AnnotationScaleDownDisabledByUs] == "true" {
		delete(n.Annotations, v1alpha1.AnnotationScaleDownDisabled)
		delete(n.Annotations, v1alpha1.AnnotationScaleDownDisabledByUs)
	}
}
