package rollout

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// ignored is a deployment without a strategy that no controller has written, after a live list of
// its sets.
func ignored() World {
	d := deployment(3)
	d.Finalizers, d.Annotations = nil, nil
	w := worldOf(d)
	w.Now, w.LiveSets = born.Add(time.Hour), map[types.UID]bool{}
	return w
}

// ignoredBefore adds the condition that the deployment is not reconciled.
func ignoredBefore(d *v1alpha1.MachineDeployment) {
	d.Status.ObservedGeneration = d.Generation
	d.Status.Conditions = []v1alpha1.MachineDeploymentCondition{{
		Type: v1alpha1.MachineDeploymentValid, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonNoStrategy,
	}}
}

// withRecordedStrategy records that the fleet reconciles the deployment.
func withRecordedStrategy(w *World) {
	w.Deployment.Annotations = map[string]string{v1alpha1.AnnotationStrategy: "RollingUpdate"}
}

// TestDeploymentsWithoutStrategyThatAreReconciled checks that the first write records it, and that
// the deployment is reconciled from then on the later states of its sets.
func TestDeploymentsWithoutStrategyThatAreReconciled(t *testing.T) {
	w := ignored()
	w.Now = born
	v := Decide(w)
	if v.Do != Save || v.Deployment.Annotations[v1alpha1.AnnotationStrategy] != "RollingUpdate" || len(v.Deployment.Finalizers) != 1 {
		t.Fatalf("at first %s, %+v", v.Do, v.Deployment)
	}
	w.Deployment, w.Now = v.Deployment, born.Add(time.Hour)
	if v = Decide(w); v.Do != Create {
		t.Errorf("then %s, %+v", v.Do, v.Deployment)
	}
}

// TestInvalidDeploymentGetsNoStrategy, without a strategy too.
func TestInvalidDeploymentGetsNoStrategy(t *testing.T) {
	w := ignored()
	w.Now, w.Deployment.Spec.Template.Labels = born, nil
	v := Decide(w)
	if got := reported(v.Deployment.Status, v1alpha1.MachineDeploymentValid); v.Do != Rest || got != "False/SelectorMatchesNothing" {
		t.Errorf("%s, Valid is %s", v.Do, got)
	}
	if len(v.Deployment.Annotations) > 0 || len(v.Deployment.Finalizers) > 0 {
		t.Errorf("it was written: %+v", v.Deployment)
	}
}

// TestDeploymentIgnoredByMCMIsNotReconciled: without a strategy, without sets, and older than the
// fleet's first pass or seen by another controller.
func TestDeploymentIgnoredByMCMIsNotReconciled(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(w *World)
		want    Action
		ignored bool
	}{
		"for an hour":                    {func(*World) {}, Rest, true},
		"its sets were not listed":       {func(w *World) { w.LiveSets = nil }, ListSets, false},
		"it has a set that is not shown": {func(w *World) { w.LiveSets["s"] = true }, Save, false},
		"it has a set": {func(w *World) {
			set := setOf(w.Deployment, "s", 3, 3)
			w.Owned, w.LiveSets["s"] = append(w.Owned, set), true
		}, Save, false},
		"it was created a moment ago": {func(w *World) { w.Now = born.Add(ignoredFor - time.Second) }, Save, false},
		"it names a strategy": {func(w *World) {
			w.Deployment.Spec.Strategy.Type = v1alpha1.RecreateMachineDeploymentStrategyType
		}, Save, false},
		"it has a finalizer":     {func(w *World) { w.Deployment.Finalizers = []string{v1alpha1.FinalizerName} }, Rest, true},
		"another has seen it":    {func(w *World) { w.Deployment.Status.ObservedGeneration = 1 }, Rest, true},
		"another saw it at once": {func(w *World) { w.Now, w.Deployment.Status.ObservedGeneration = born, 1 }, Rest, true},
		"it was brought back as it was": {func(w *World) {
			w.Now, w.Deployment.Finalizers = born, []string{v1alpha1.FinalizerName}
		}, Rest, true},
		"the fleet works on it":            {withRecordedStrategy, Save, false},
		"the fleet does, and it is paused": {func(w *World) { withRecordedStrategy(w); w.Deployment.Spec.Paused = true }, Save, false},
		"it was corrected": {func(w *World) {
			ignoredBefore(w.Deployment)
			w.Deployment.Status.Conditions[0].Reason = v1alpha1.ReasonInvalidSpec
			w.Deployment.Generation++
		}, Save, false},
		"it was reported before":              {func(w *World) { ignoredBefore(w.Deployment) }, Rest, true},
		"it was reported before it was young": {func(w *World) { ignoredBefore(w.Deployment); w.Now = born }, Rest, true},
		"its spec has changed since":          {func(w *World) { ignoredBefore(w.Deployment); w.Deployment.Generation++ }, Save, false},
		"it is being deleted, unclaimed":      {func(w *World) { w.Deployment.DeletionTimestamp = &metav1.Time{Time: w.Now} }, Rest, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := ignored()
			tc.change(&w)
			v := Decide(w)
			if v.Do != tc.want {
				t.Fatalf("Do = %s, want %s", v.Do, tc.want)
			}
			if !tc.ignored || v.Deployment == nil {
				return
			}
			if got := reported(v.Deployment.Status, v1alpha1.MachineDeploymentValid); got != "False/NoStrategy" || len(v.Events) != 1 {
				t.Errorf("Valid is %s, Events %v", got, v.Events)
			}
			v.Deployment.Status = w.Deployment.Status
			if !apiequality.Semantic.DeepEqual(v.Deployment, w.Deployment) {
				t.Errorf("it was written: %+v", v.Deployment)
			}
		})
	}
}
