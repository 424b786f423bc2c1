package nodesync

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/scenario"
)

// given is a Node of machine m in slot 7 that was claimed before and of which nothing is asked.
func given() (*corev1.Node, Wanted) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "m", Labels: map[string]string{v1alpha1.LabelMachineName: "m", v1alpha1.LabelSlot: "7"},
		Annotations: map[string]string{v1alpha1.AnnotationMachine: "n/m/u"},
		Finalizers:  []string{v1alpha1.NodeFinalizerName},
	}}
	return node, Wanted{
		Machine: v1alpha1.MachineRef{Namespace: "n", Name: "m", UID: "u"}, Slot: "7", Template: &v1alpha1.NodeTemplateSpec{},
		Class: &v1alpha1.MachineClass{},
	}
}

// TestScenarios runs the scenarios in testdata. Each fact changes given(), and is YAML:
//
//	new:                                     the Node has just joined, and was never written
//	node: {metadata: {labels: {a: b}}}       merged into the Node
//	asked: {metadata: {labels: {a: b}}}      the last applied template in the record of the Node
//	capacity asked: {a: 1}                   the last applied capacity
//	applied: {taints: ["a:NoSchedule"]}      the record of the machine: restricted values that the fleet has added to the Node
//	template: {metadata: {labels: {a: b}}}   the template of the machine; unknown: it is not known
//	class: {virtualCapacity: {a: 1}}         the class' nodeTemplate; unknown: the class is not known
//	marks: tainted kept                      the marks of its set while machines are replaced: tainted, and kept or free; unknown: the
//	                                         set is not seen; without this line it is not known either
//	uncordon:                                the cordon is to be removed
//	slot: 8                                  of the machine; - means that it is in none
//
// The verdict is every request, one after the other, until there is nothing left to write: "if as
// read" marks a patch that is valid for this version of the Node only.
func TestScenarios(t *testing.T) {
	scenario.Run(t, "testdata/*.txt", func(t *testing.T, s scenario.Scenario) string {
		t.Helper()
		node, wanted := given()
		for _, fact := range s.Given {
			if err := report(node, &wanted, fact); err != nil {
				t.Fatalf("line %d: %v", fact.Line, err)
			}
		}
		var out strings.Builder
		for range 5 {
			if wanted.Template != nil { // the record of the machine is written before the Node
				wanted.Applied = wanted.Applied.With(wanted.Applied.Asked(node, wanted.Template))
			}
			patch := next(node, wanted)
			if patch == nil {
				out.WriteString("done\n")
				return out.String()
			}
			fmt.Fprintln(&out, describe(t, patch))
			node = patched(t, node, patch)
		}
		t.Fatalf("it does not end:\n%s", out.String())
		return ""
	})
}

func report(node *corev1.Node, wanted *Wanted, fact scenario.Fact) error {
	value := []byte(fact.Value)
	note := func(key string) error {
		text, err := yaml.YAMLToJSON(value)
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, key, string(text))
		return err
	}
	switch fact.Key {
	case "new":
		node.Labels, node.Annotations, node.Finalizers = map[string]string{}, nil, nil
	case "node":
		return yaml.UnmarshalStrict(value, node)
	case "asked":
		return note(v1alpha1.AnnotationLastAppliedNodeTemplate)
	case "capacity asked":
		return note(v1alpha1.AnnotationLastAppliedVirtualCapacity)
	case "applied":
		return yaml.UnmarshalStrict(value, &wanted.Applied)
	case "template":
		if fact.Value == "unknown" {
			wanted.Template = nil
			return nil
		}
		return yaml.UnmarshalStrict(value, wanted.Template)
	case "class":
		if fact.Value == "unknown" {
			wanted.Class = nil
			return nil
		}
		wanted.Class.NodeTemplate = &v1alpha1.NodeTemplate{}
		return yaml.UnmarshalStrict(value, wanted.Class.NodeTemplate)
	case "marks":
		wanted.Rollout = marks(strings.Fields(fact.Value))
	case "uncordon":
		wanted.Uncordon = true
	case "slot":
		wanted.Slot = strings.TrimPrefix(fact.Value, "-")
	default:
		return fmt.Errorf("expected a fact that TestScenarios lists, got %q", fact.Key)
	}
	return nil
}

// marks reads the marks of a set for the Nodes of its machines.
func marks(words []string) *Rollout {
	set := &v1alpha1.MachineSet{}
	for _, word := range words {
		switch word {
		case "unknown":
			return nil
		case "tainted":
			metav1.SetMetaDataAnnotation(&set.ObjectMeta, v1alpha1.AnnotationPreferNoSchedule, v1alpha1.PreferNoScheduleTrue)
		case "kept":
			metav1.SetMetaDataAnnotation(&set.ObjectMeta, v1alpha1.AnnotationRolling, v1alpha1.RollingTrue)
		case "free":
			metav1.SetMetaDataAnnotation(&set.ObjectMeta, v1alpha1.AnnotationRolling, v1alpha1.RollingFalse)
		}
	}
	m := RolloutOf(set)
	return &m
}

// next is the next request; nil when nothing is left to do.
func next(node *corev1.Node, wanted Wanted) *Patch {
	main, status := Diff(node, wanted.Apply(node))
	if main != nil {
		return main
	}
	return status
}

func describe(t *testing.T, p *Patch) string {
	t.Helper()
	text, err := json.Marshal(p.Body)
	if err != nil {
		t.Fatal(err)
	}
	line := "patch " + string(text)
	if p.Status {
		line = "patch of status " + string(text)
	}
	if p.AsRead {
		line += " if as read"
	}
	return line
}

// patched returns what an API server stores after a patch of a Node.
func patched(t interface{ Fatal(args ...any) }, node *corev1.Node, patch *Patch) *corev1.Node {
	before, err1 := json.Marshal(node)
	change, err2 := json.Marshal(patch.Body)
	after, err3 := strategicpatch.StrategicMergePatch(before, change, corev1.Node{})
	n := &corev1.Node{}
	err4 := json.Unmarshal(after, n)
	for _, err := range []error{err1, err2, err3, err4} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return n
}
