package preserve

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/scenario"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// running is a machine that runs, with a Node, without the annotation.
func running() World {
	return World{
		Now: now, Timeout: 96 * time.Hour,
		Machine: &v1alpha1.Machine{
			ObjectMeta: metav1.ObjectMeta{Name: "m", Annotations: map[string]string{}},
			Status:     v1alpha1.MachineStatus{CurrentStatus: v1alpha1.CurrentStatus{Phase: v1alpha1.MachineRunning}},
		},
		Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m", Annotations: map[string]string{}}},
	}
}

// TestScenarios runs the scenarios in testdata. Each fact changes running():
//
//	phase: Failed                   of the machine
//	machine: now                    the annotation on the Machine; - means that it has none, "" that it is empty
//	node: now                       that on its Node; none means that there is no Node
//	noted: now                      the value of the Node that is recorded on the Machine
//	template: now                   that in the machine's nodeTemplate
//	expiry: 96h                     when the machine's time is over, from now
//	timeout: 1h                     the machine's own machinePreserveTimeout
//	tainted                         the Node has the taint
//	condition: True                 of the Node; reason and message as they were; stopped: as at the end
//	autoscaler: ours                who has set the annotation for the autoscaler; or: users, or -
//	drain: done                     unknown, running, done, failed, forced; and its message
//
// The verdict lists what changes in Machine and Node; "drain" if the Node is to be drained; and
// when to look again.
func TestScenarios(t *testing.T) {
	scenario.Run(t, "testdata/*.txt", func(t *testing.T, s scenario.Scenario) string {
		t.Helper()
		w := running()
		for _, fact := range s.Given {
			if err := report(&w, fact); err != nil {
				t.Fatalf("line %d: %v", fact.Line, err)
			}
		}
		machine, node := w.Machine.DeepCopy(), w.Node.DeepCopy()
		v := Decide(w)
		if diff := cmp.Diff(machine, w.Machine) + cmp.Diff(node, w.Node); diff != "" {
			t.Errorf("Decide has changed its input:\n%s", diff)
		}
		if again := Decide(w); !reflect.DeepEqual(v, again) {
			t.Errorf("the second call of Decide returns another result: %+v and %+v", v, again)
		}
		return describe(w, v)
	})
}

func report(w *World, fact scenario.Fact) error {
	annotation := func(o *metav1.ObjectMeta, key string) {
		if fact.Value != "-" {
			metav1.SetMetaDataAnnotation(o, key, strings.Trim(fact.Value, `"`))
		}
	}
	status := &w.Machine.Status.CurrentStatus
	switch fact.Key {
	case "phase":
		status.Phase = v1alpha1.MachinePhase(fact.Value)
	case "machine":
		annotation(&w.Machine.ObjectMeta, v1alpha1.AnnotationPreserve)
	case "noted":
		annotation(&w.Machine.ObjectMeta, v1alpha1.AnnotationLastAppliedNodePreserveValue)
	case "template":
		annotation(&w.Machine.Spec.NodeTemplateSpec.ObjectMeta, v1alpha1.AnnotationPreserve)
	case "node":
		if fact.Value == "none" {
			w.Node = nil
			return nil
		}
		annotation(&w.Node.ObjectMeta, v1alpha1.AnnotationPreserve)
	case "expiry", "timeout":
		d, err := time.ParseDuration(fact.Value)
		if fact.Key == "timeout" {
			w.Machine.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachinePreserveTimeout: &metav1.Duration{Duration: d}}
		} else {
			status.PreserveExpiryTime = &metav1.Time{Time: now.Add(d)}
		}
		return err
	case "tainted":
		w.Node.Spec.Taints = []corev1.Taint{
			{Key: v1alpha1.TaintPreserved, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &metav1.Time{Time: now.Add(-time.Hour)}},
		}
	case "condition":
		w.Node.Status.Conditions = []corev1.NodeCondition{{
			Type: v1alpha1.NodePreserved, Status: corev1.ConditionStatus(fact.Value), Reason: "as before", Message: "as before",
			LastTransitionTime: metav1.NewTime(now.Add(-time.Hour)),
		}}
		if fact.Value == "stopped" {
			w.Node.Status.Conditions = removePreserved(*w, false).Status.Conditions
		}
	case "autoscaler":
		w.Node.Annotations = map[string]string{v1alpha1.AnnotationScaleDownDisabled: "true"}
		switch fact.Value {
		case "ours":
			w.Node.Annotations[v1alpha1.AnnotationScaleDownDisabledByUs] = "true"
		case "-":
			w.Node.Annotations = map[string]string{}
		}
	case "drain":
		drains := map[string]Drain{
			"unknown": DrainUnknown, "running": DrainRunning, "done": DrainDone, "failed": DrainFailed, "forced": DrainForced,
		}
		state, text, _ := strings.Cut(fact.Value, " ")
		w.Drain, w.DrainText = drains[state], text
	default:
		return fmt.Errorf("expected a fact that TestScenarios lists, got %q", fact.Key)
	}
	return nil
}

func describe(w World, v Verdict) string {
	out := annotations("machine", w.Machine.Annotations, v.Machine.Annotations)
	before, after := w.Machine.Status.CurrentStatus.PreserveExpiryTime, v.Machine.Status.CurrentStatus.PreserveExpiryTime
	switch {
	case after == nil && before != nil:
		out = append(out, "machine: not preserved")
	case after != nil && !after.Equal(before):
		out = append(out, "machine: preserved until +"+after.Sub(now).String())
	}
	if w.Node != nil {
		out = append(out, nodeChanges(w.Node, v.Node)...)
	}
	if v.Drain {
		out = append(out, "drain")
	}
	if !v.Until.IsZero() {
		out = append(out, "until +"+v.Until.Sub(now).String())
	}
	for word, is := range map[string]bool{
		"began": v.Began, "ended, because " + v.Ended: v.Ended != "", "unknown value " + v.Unknown: v.Unknown != "",
	} {
		if is {
			out = append(out, word)
		}
	}
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, "\n")
}

func annotations(of string, before, after map[string]string) (out []string) {
	all := map[string]string{}
	maps.Copy(all, before)
	maps.Copy(all, after)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		was, had := before[key]
		is, has := after[key]
		switch {
		case had && !has:
			out = append(out, fmt.Sprintf("%s: without %s", of, key))
		case was != is || !had:
			out = append(out, fmt.Sprintf("%s: %s=%s", of, key, is))
		}
	}
	return out
}

func nodeChanges(before, after *corev1.Node) []string {
	out := annotations("node", before.Annotations, after.Annotations)
	switch was, is := isTainted(before), isTainted(after); {
	case was && !is:
		out = append(out, "node: without the taint")
	case is && !was:
		out = append(out, "node: tainted, added at +"+after.Spec.Taints[0].TimeAdded.Sub(now).String())
	}
	if was, is := condition(before), condition(after); is != nil && (was == nil || *was != *is) {
		out = append(out, fmt.Sprintf("node: Preserved is %s since %s, %q, %q", is.Status, is.LastTransitionTime.Sub(now), is.Reason, is.Message))
	}
	return out
}
