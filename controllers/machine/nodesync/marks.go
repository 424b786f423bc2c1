package nodesync

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Marks are what a Node carries while the machines of its deployment are replaced.
type Marks struct {
	// PreferNoSchedule has new pods keep off the Node where they can.
	PreferNoSchedule bool
	// Autoscaler says whether the cluster-autoscaler is kept from removing the Node.
	Autoscaler Autoscaler
	// IsOld says that the set is an old one, which its machines leave: what an update in place has left on a Node stays there
	// until its machine has another set.
	IsOld bool
}

// Autoscaler says whether the cluster-autoscaler is kept from removing a Node.
type Autoscaler int

// The values. AutoscalerAsIs is the zero value: nothing about it is changed.
const (
	AutoscalerAsIs Autoscaler = iota
	// AutoscalerKept keeps it from removing the Node.
	AutoscalerKept
	// AutoscalerFree does so no longer. What a user has said stays.
	AutoscalerFree
)

// MarksOf reads what the Nodes of a set's machines are to carry.
func MarksOf(set *v1alpha1.MachineSet) Marks {
	m := Marks{PreferNoSchedule: set.Annotations[v1alpha1.AnnotationPreferNoSchedule] == v1alpha1.PreferNoScheduleTrue}
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

// apply puts the marks on a Node, and takes those off that are not asked for.
func (m Marks) apply(n *corev1.Node) {
	taint := corev1.Taint{
		Key: v1alpha1.TaintPreferNoSchedule, Value: v1alpha1.PreferNoScheduleTrue, Effect: corev1.TaintEffectPreferNoSchedule,
	}
	switch i := find(n.Spec.Taints, taint); {
	case m.PreferNoSchedule && i < 0:
		n.Spec.Taints = append(n.Spec.Taints, taint)
	case !m.PreferNoSchedule && i >= 0:
		n.Spec.Taints = slices.Delete(n.Spec.Taints, i, i+1)
	}
	switch m.Autoscaler {
	case AutoscalerAsIs:
	case AutoscalerKept:
		KeepFromAutoscaler(n)
	case AutoscalerFree:
		LeaveToAutoscaler(n)
	}
}

// KeepFromAutoscaler sets the annotation that the autoscaler reads, and beside it that it is ours. One that a user has set
// is his, and stays when nobody else needs it any more.
func KeepFromAutoscaler(n *corev1.Node) {
	if n.Annotations[v1alpha1.AnnotationScaleDownDisabled] == "true" {
		return
	}
	n.Annotations = orEmpty(n.Annotations)
	n.Annotations[v1alpha1.AnnotationScaleDownDisabled] = "true"
	n.Annotations[v1alpha1.AnnotationScaleDownDisabledByUs] = "true"
}

// LeaveToAutoscaler takes the annotation off that KeepFromAutoscaler has set.
func LeaveToAutoscaler(n *corev1.Node) {
	if n.Annotations[v1alpha1.AnnotationScaleDownDisabledByUs] == "true" {
		delete(n.Annotations, v1alpha1.AnnotationScaleDownDisabled)
		delete(n.Annotations, v1alpha1.AnnotationScaleDownDisabledByUs)
	}
}
