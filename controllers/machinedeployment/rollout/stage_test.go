package rollout

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

func TestUnderWay(t *testing.T) {
	old, current := deployment(3), deployment(3)
	old.Spec.Template.Spec.Class.Name = "old"
	revised := func(d *v1alpha1.MachineDeployment, revision string) *v1alpha1.MachineSet {
		set := setOf(d, types.UID(revision), 3, 3)
		set.Annotations = map[string]string{v1alpha1.AnnotationRevision: revision}
		return set
	}
	complete := func(observed int64) *v1alpha1.MachineDeployment {
		d := current.DeepCopy()
		d.Generation, d.Status.ObservedGeneration = 2, observed
		d.Status.Conditions = []v1alpha1.MachineDeploymentCondition{{
			Type: v1alpha1.MachineDeploymentProgressing, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonNewMachineSetAvailable,
		}}
		return d
	}
	left := revised(old, "1")
	left.Spec.Replicas, left.Status.Replicas = 0, 0
	for name, tc := range map[string]struct {
		d        *v1alpha1.MachineDeployment
		sets     []*v1alpha1.MachineSet
		revision int64
		is       bool
	}{
		"it is new":                   {current, nil, 1, true},
		"its set exists":              {current, []*v1alpha1.MachineSet{revised(old, "1"), revised(current, "2")}, 2, true},
		"complete":                    {complete(2), []*v1alpha1.MachineSet{revised(current, "2")}, 0, false},
		"resized":                     {complete(1), []*v1alpha1.MachineSet{left, revised(current, "2")}, 2, false},
		"no status since it began":    {complete(1), []*v1alpha1.MachineSet{revised(old, "1"), revised(current, "2")}, 2, true},
		"a new template":              {complete(1), []*v1alpha1.MachineSet{revised(old, "2")}, 3, true},
		"back to the template before": {complete(1), []*v1alpha1.MachineSet{revised(current, "1"), revised(old, "2")}, 3, true},
	} {
		if revision, is := UnderWay(tc.d, tc.sets); revision != tc.revision || is != tc.is {
			t.Errorf("%s: revision %d, %t; want %d, %t", name, revision, is, tc.revision, tc.is)
		}
	}
}

func TestWaits(t *testing.T) {
	paused := deployment(3)
	paused.Spec.Paused = true
	d := deployment(3)
	shrinking := older("old", 0, 1)
	shrinking.Status.Replicas = 2
	delayed := setOf(d, "new", 3, 1)
	delayed.Status.Conditions = []v1alpha1.MachineSetCondition{{Type: v1alpha1.MachineSetCreationDelayed, Status: corev1.ConditionTrue}}
	for want, tc := range map[string]struct {
		d    *v1alpha1.MachineDeployment
		sets []*v1alpha1.MachineSet
	}{
		"the end of a pause":           {paused, []*v1alpha1.MachineSet{setOf(d, "new", 3, 1)}},
		"new machines to be available": {d, []*v1alpha1.MachineSet{setOf(d, "new", 3, 1), shrinking}},
		"old machines to be gone":      {d, []*v1alpha1.MachineSet{setOf(d, "new", 3, 3), shrinking}},
		"the next step of a rollout":   {d, []*v1alpha1.MachineSet{setOf(d, "new", 2, 2), older("old", 0, 1)}},
		"the end of a freeze": {
			having(v1alpha1.MachineDeploymentRolloutStalled, v1alpha1.ReasonMachineSetFrozen), nil,
		},
		"the next request to an API server after a failure": {having(v1alpha1.MachineDeploymentRolloutStalled, v1alpha1.ReasonFailedCreate), nil},
		"a correction by a user": {
			having(v1alpha1.MachineDeploymentRolloutStalled, v1alpha1.ReasonInPlaceUpdateFailed), nil,
		},
		"the end of a preservation":      {having(v1alpha1.MachineDeploymentRolloutStalled, v1alpha1.ReasonMachinesPreserved), nil},
		"the update in place":            {having(v1alpha1.MachineDeploymentRolloutStalled, v1alpha1.ReasonMachinesUpdating), nil},
		"Nodes to be selected by a user": {having(v1alpha1.MachineDeploymentRolloutStalled, v1alpha1.ReasonNodesNotSelected), nil},
		"the end of a hold of deletions": {
			having(v1alpha1.MachineDeploymentDeletionsHeld, "HoldAnnotation"), []*v1alpha1.MachineSet{setOf(d, "new", 3, 3), shrinking},
		},
		"the end of a delay of creations": {d, []*v1alpha1.MachineSet{delayed}},
	} {
		if got := Waits(tc.d, tc.sets, Verdict{}); got != want {
			t.Errorf("it waits for %q, want %q", got, want)
		}
	}
	invalid := having(v1alpha1.MachineDeploymentValid, v1alpha1.ReasonInvalidSpec)
	invalid.Status.Conditions[0].Status = corev1.ConditionFalse
	if got := Waits(invalid, nil, Verdict{}); got != "a correction by a user" {
		t.Errorf("an invalid deployment waits for %q", got)
	}
	complete := deployment(3)
	complete.Status.ObservedGeneration = complete.Generation
	complete.Status.Conditions = []v1alpha1.MachineDeploymentCondition{
		{Type: v1alpha1.MachineDeploymentProgressing, Reason: v1alpha1.ReasonNewMachineSetAvailable},
	}
	if got := Waits(d, nil, Verdict{Deployment: complete}); got != "" {
		t.Errorf("without a rollout it waits for %q", got)
	}
}

// having returns a deployment with a condition that is True.
func having(condition v1alpha1.MachineDeploymentConditionType, reason string) *v1alpha1.MachineDeployment {
	d := deployment(3)
	d.Status.Conditions = []v1alpha1.MachineDeploymentCondition{{Type: condition, Status: corev1.ConditionTrue, Reason: reason}}
	return d
}
