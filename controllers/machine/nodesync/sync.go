package nodesync

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	fleetv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Wanted is the desired state of a Node.
type Wanted struct {
	// Machine that the Node is bound to.
	Machine v1alpha1.MachineRef
	// Slot of the machine; "" if it has none.
	Slot string
	// Template of the machine. Nil means that it is not known, and none of its contents are changed.
	Template *v1alpha1.NodeTemplateSpec
	// Applied is the machine's record of what the fleet has added to the Node.
	Applied Applied
	// Rollout contains what the Node must carry while machines are replaced. Nil means that it is not
	// known, and nothing is changed.
	Rollout *Rollout
	// Uncordon removes the cordon of the Node, which must be the cluster-autoscaler's.
	Uncordon bool
	// Class of the machine, for its virtual capacity. Nil means that it is not known, and the capacity
	// is not changed.
	Class *v1alpha1.MachineClass
}

// Apply returns the Node after the next request for its metadata and spec, and the next one for its
// status. The given Node is not changed. When nothing is left to do, the two are equal.
func (w Wanted) Apply(node *corev1.Node) *corev1.Node {
	n := node.DeepCopy()
	n.Labels, n.Annotations = orEmpty(n.Labels), orEmpty(n.Annotations)
	w.tie(n)
	if w.Rollout != nil {
		w.Rollout.apply(n)
	}
	if w.Uncordon {
		n.Spec.Unschedulable = false
	}
	if w.Template != nil {
		applyTemplate(n, w.Applied.Asked(node, w.Template).of(w.Template), w.Applied)
	}
	if w.Class != nil {
		applyCapacity(n, virtualCapacity(w.Class))
	}
	return n
}

// IsTied reports whether the Node is bound to the machine, and carries our finalizer, the machine's
// name and its slot.
func (w Wanted) IsTied(node *corev1.Node) bool {
	return node.Annotations[v1alpha1.AnnotationMachine] == w.Machine.String() && node.Labels[v1alpha1.LabelMachineName] == w.Machine.Name &&
		node.Labels[v1alpha1.LabelSlot] == w.Slot &&
		slices.Contains(node.Finalizers, v1alpha1.NodeFinalizerName)
}

// tie adds the binding to the machine.
func (w Wanted) tie(n *corev1.Node) {
	n.Annotations[v1alpha1.AnnotationMachine] = w.Machine.String()
	n.Labels[v1alpha1.LabelMachineName] = w.Machine.Name
	if w.Slot == "" {
		delete(n.Labels, v1alpha1.LabelSlot)
	} else {
		n.Labels[v1alpha1.LabelSlot] = w.Slot
	}
	if !slices.Contains(n.Finalizers, v1alpha1.NodeFinalizerName) {
		n.Finalizers = append(n.Finalizers, v1alpha1.NodeFinalizerName)
	}
	delete(n.Annotations, v1alpha1.AnnotationNotManaged) // it has a machine
}

// isReserved reports whether a label, annotation or taint of that name is controlled by the fleet,
// regardless of what a template has: it would be removed and added again and again, delete each
// machine of the template, or assign a configuration that no administrator has.
func isReserved(key string) bool {
	if strings.HasPrefix(key, v1alpha1.FleetDomain) || fleetv1alpha1.IsNodeAnnotationOfDaemons(key) {
		return true
	}
	switch key {
	case v1alpha1.LabelMachineName, v1alpha1.AnnotationNotManaged,
		v1alpha1.AnnotationLastAppliedNodeTemplate, v1alpha1.AnnotationLastAppliedVirtualCapacity,
		v1alpha1.AnnotationTriggerDeletion, v1alpha1.AnnotationUpdateFailedReason, fleetv1alpha1.TaintUpdateInProgress,
		v1alpha1.LabelCandidateForUpdate, v1alpha1.LabelSelectedForUpdate, v1alpha1.LabelUpdateResult,
		v1alpha1.TaintPreserved, v1alpha1.TaintPreferNoSchedule:
		return true
	}
	return false
}

// applyTemplate merges labels, annotations and taints, and records the desired ones. The Node's
// record of the last applied values is trusted only for what its kubelet could remove itself; for
// the rest the machine's record is used.
func applyTemplate(n *corev1.Node, template *v1alpha1.NodeTemplateSpec, applied Applied) {
	last, known := lastTemplate(n)
	merged := applied.in(last)
	mergeMap(n.Labels, merged.Labels, template.Labels)
	mergeMap(n.Annotations, merged.Annotations, template.Annotations)
	n.Spec.Taints = mergeTaints(n.Spec.Taints, merged.Spec.Taints, template.Spec.Taints)
	if sameTemplate(&last, template) && (known || isEmpty(template)) {
		return // equal to the record, regardless of its form
	}
	note(n, v1alpha1.AnnotationLastAppliedNodeTemplate, template)
}

// lastTemplate returns the last applied template; known is false if the record is missing or
// invalid. Then nothing is removed, and a new record is written.
func lastTemplate(n *corev1.Node) (last v1alpha1.NodeTemplateSpec, known bool) {
	text, noted := n.Annotations[v1alpha1.AnnotationLastAppliedNodeTemplate]
	if err := json.Unmarshal([]byte(text), &last); !noted || err != nil {
		return v1alpha1.NodeTemplateSpec{}, false
	}
	return last, true
}

func isEmpty(t *v1alpha1.NodeTemplateSpec) bool {
	return len(t.Labels) == 0 && len(t.Annotations) == 0 && len(t.Spec.Taints) == 0
}

// sameTemplate compares the parts of two templates that are applied to a Node.
func sameTemplate(a, b *v1alpha1.NodeTemplateSpec) bool {
	return maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		slices.EqualFunc(a.Spec.Taints, b.Spec.Taints, sameTaint)
}

// mergeMap removes from have the values that were applied and are no longer desired, and adds the
// desired ones.
func mergeMap(have, last, want map[string]string) {
	for key := range last {
		if _, still := want[key]; !still && !isReserved(key) {
			delete(have, key)
		}
	}
	for key, value := range want {
		if !isReserved(key) {
			have[key] = value
		}
	}
}

// mergeTaints does the same with taints, which have no order, and of which a Node has one for each
// key and effect.
func mergeTaints(have, last, want []corev1.Taint) []corev1.Taint {
	merged := slices.DeleteFunc(slices.Clone(have), func(t corev1.Taint) bool {
		return find(last, t) >= 0 && find(want, t) < 0 && !isReserved(t.Key)
	})
	for _, t := range want {
		switch i := find(merged, t); {
		case isReserved(t.Key):
		case i < 0:
			merged = append(merged, t)
		case !sameTaint(merged[i], t):
			merged[i] = t
		}
	}
	return merged
}

// find returns the index of the taint with the key and effect of t; -1 if there is none.
func find(taints []corev1.Taint, t corev1.Taint) int {
	return slices.IndexFunc(taints, func(other corev1.Taint) bool { return other.Key == t.Key && other.Effect == t.Effect })
}

// sameTaint ignores the time: other controllers set it when they act on a taint.
func sameTaint(a, b corev1.Taint) bool {
	return a.Key == b.Key && a.Effect == b.Effect && a.Value == b.Value
}

// note returns a value as JSON. Templates and resource lists were decoded from JSON and can always
// be encoded.
func note(n *corev1.Node, key string, value any) {
	if text, err := json.Marshal(value); err == nil {
		n.Annotations[key] = string(text)
	}
}

func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}
