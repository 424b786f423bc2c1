package nodesync

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Applied is the part of a template that the fleet has added to a Node and that a kubelet must not
// change: labels of the domains of Kubernetes, which NodeRestriction prevents a kubelet from
// changing, and taints.
type Applied struct {
	// Labels are keys.
	Labels []string `json:"labels,omitempty"`
	// Taints are keys and effects, "<key>:<effect>".
	Taints []string `json:"taints,omitempty"`
}

// AppliedOf returns the record of a machine; the zero value if there is none, or an invalid one.
func AppliedOf(m *v1alpha1.Machine) (a Applied) {
	if err := json.Unmarshal([]byte(m.Annotations[v1alpha1.AnnotationApplied]), &a); err != nil {
		return Applied{}
	}
	return a
}

// Restricted returns the part of a template that a kubelet must not change.
func Restricted(template *v1alpha1.NodeTemplateSpec) (a Applied) {
	for key := range template.Labels {
		if isRestricted(key) {
			a.Labels = append(a.Labels, key)
		}
	}
	for _, t := range template.Spec.Taints {
		a.Taints = append(a.Taints, idOf(t))
	}
	return a.With(Applied{})
}

// Asked returns the restricted part of a template that the fleet may add to a Node and remove
// again. Values that exist already and were not added by the fleet are excluded: an administrator's
// taint must not come under a tenant's control because the template has it. Values that Machine
// Controller Manager has added belong to the fleet. Its record is trusted on a Node that is bound
// to no machine, for a machine without a record.
func (a Applied) Asked(node *corev1.Node, template *v1alpha1.NodeTemplateSpec) Applied {
	ours := a
	if _, bound := v1alpha1.MachineOf(node); !bound && a.IsEmpty() {
		last, _ := lastTemplate(node)
		ours = Restricted(&last)
	}
	asked := Restricted(template)
	asked.Labels = slices.DeleteFunc(asked.Labels, func(key string) bool {
		_, there := node.Labels[key]
		return there && !slices.Contains(ours.Labels, key)
	})
	asked.Taints = slices.DeleteFunc(asked.Taints, func(id string) bool {
		there := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return idOf(t) == id })
		return there && !slices.Contains(ours.Taints, id)
	})
	return asked
}

// of returns a template without its restricted part, except for that of a.
func (a Applied) of(template *v1alpha1.NodeTemplateSpec) *v1alpha1.NodeTemplateSpec {
	t := template.DeepCopy()
	maps.DeleteFunc(t.Labels, func(key, _ string) bool { return isRestricted(key) && !slices.Contains(a.Labels, key) })
	t.Spec.Taints = slices.DeleteFunc(t.Spec.Taints, func(t corev1.Taint) bool { return !slices.Contains(a.Taints, idOf(t)) })
	return t
}

// With returns the union of both, sorted and without duplicates.
func (a Applied) With(b Applied) Applied {
	all := Applied{Labels: slices.Concat(a.Labels, b.Labels), Taints: slices.Concat(a.Taints, b.Taints)}
	slices.Sort(all.Labels)
	slices.Sort(all.Taints)
	return Applied{Labels: slices.Compact(all.Labels), Taints: slices.Compact(all.Taints)}
}

// Covers reports whether all of b is in a.
func (a Applied) Covers(b Applied) bool {
	return !slices.ContainsFunc(b.Labels, func(key string) bool { return !slices.Contains(a.Labels, key) }) &&
		!slices.ContainsFunc(b.Taints, func(id string) bool { return !slices.Contains(a.Taints, id) })
}

// IsEmpty reports whether a is empty.
func (a Applied) IsEmpty() bool { return len(a.Labels) == 0 && len(a.Taints) == 0 }

// String returns the value of the machine's annotation.
func (a Applied) String() string {
	text, err := json.Marshal(a)
	if err != nil {
		return "" // strings can always be encoded
	}
	return string(text)
}

// in returns the last applied template from the Node's record: without its restricted part, which
// is that of a.
func (a Applied) in(last v1alpha1.NodeTemplateSpec) (merged v1alpha1.NodeTemplateSpec) {
	merged.Labels, merged.Annotations = map[string]string{}, last.Annotations
	for key := range last.Labels {
		if !isRestricted(key) {
			merged.Labels[key] = ""
		}
	}
	for _, key := range a.Labels {
		merged.Labels[key] = ""
	}
	for _, id := range a.Taints {
		key, effect, _ := strings.Cut(id, ":")
		merged.Spec.Taints = append(merged.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffect(effect)})
	}
	return merged
}

func idOf(t corev1.Taint) string { return t.Key + ":" + string(t.Effect) }

// isRestricted reports whether a label is of the domains of Kubernetes. A kubelet may set some of
// these; that does no harm.
func isRestricted(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return slices.ContainsFunc([]string{"kubernetes.io", "k8s.io"}, func(of string) bool {
		return domain == of || strings.HasSuffix(domain, "."+of)
	})
}
