package nodesync

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Applied is what of a template the fleet has put on a Node, as far as a kubelet must not change it: labels of the domains of
// Kubernetes, which NodeRestriction keeps a kubelet from changing, and taints.
type Applied struct {
	// Labels are keys.
	Labels []string `json:"labels,omitempty"`
	// Taints are keys and effects, "<key>:<effect>".
	Taints []string `json:"taints,omitempty"`
}

// AppliedOf returns what a machine says. Nothing, where it says nothing or what cannot be read.
func AppliedOf(m *v1alpha1.Machine) (a Applied) {
	if err := json.Unmarshal([]byte(m.Annotations[v1alpha1.AnnotationApplied]), &a); err != nil {
		return Applied{}
	}
	return a
}

// Restricted returns what of a template a kubelet must not change.
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

// Asked returns what of a template, as far as a kubelet must not change it, is the fleet's to put on a Node and to take off again.
// What is there already, and was not put there by the fleet, is not: an administrator's taint must not become a tenant's by being
// asked for. What Machine Controller Manager has put there is the fleet's. Its note is believed on a Node that is bound to no
// machine, of a machine that does not say anything yet.
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

// of returns a template without what a kubelet must not change, but for that of a.
func (a Applied) of(template *v1alpha1.NodeTemplateSpec) *v1alpha1.NodeTemplateSpec {
	if a.Covers(Restricted(template)) {
		return template
	}
	t := template.DeepCopy()
	maps.DeleteFunc(t.Labels, func(key, _ string) bool { return isRestricted(key) && !slices.Contains(a.Labels, key) })
	t.Spec.Taints = slices.DeleteFunc(t.Spec.Taints, func(t corev1.Taint) bool { return !slices.Contains(a.Taints, idOf(t)) })
	return t
}

// With returns both, in order and each once.
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

// IsEmpty reports whether there is nothing.
func (a Applied) IsEmpty() bool { return len(a.Labels) == 0 && len(a.Taints) == 0 }

// String returns a as a machine has it.
func (a Applied) String() string {
	text, err := json.Marshal(a)
	if err != nil {
		return "" // strings always encode
	}
	return string(text)
}

// in returns what was asked for last, from what the Node says of it: without what a kubelet must not change, which is that of a.
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

// isRestricted reports whether a label is of the domains of Kubernetes. Some of these a kubelet may set; that does not matter.
func isRestricted(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return slices.ContainsFunc([]string{"kubernetes.io", "k8s.io"}, func(of string) bool {
		return domain == of || strings.HasSuffix(domain, "."+of)
	})
}
