package rollout

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// TestRollBack: template and annotations come back, but nothing that is about the set alone, and
// nothing that only the deployment has goes.
func TestRollBack(t *testing.T) {
	old := older("o", time.Hour, 0)
	old.Annotations = map[string]string{
		"mine": "as it was", "was": "there",
		v1alpha1.AnnotationRevision: "1", v1alpha1.AnnotationRevisionHistory: "0", v1alpha1.AnnotationDesiredReplicas: "7",
		v1alpha1.AnnotationMaxReplicas: "8", v1alpha1.AnnotationPreferNoSchedule: v1alpha1.PreferNoScheduleTrue,
		v1alpha1.AnnotationIntents: "{}", v1alpha1.AnnotationTraceparent: "00-1-2-01", v1alpha1.AnnotationRolling: v1alpha1.RollingFalse,
		v1alpha1.AnnotationLastReplicaChangeByScaler: "2026-01-02T03:04:05Z", v1alpha1.AnnotationDisruptions: "[]",
		v1alpha1.AnnotationReplacedBy: "s", v1alpha1.AnnotationUnfreeze: "", v1alpha1.AnnotationTriggerDeletion: "m",
		v1alpha1.AnnotationStrategy:                        "other",
		"kubectl.kubernetes.io/last-applied-configuration": "{}",
	}
	d := deployment(3)
	d.Annotations["only"] = "here"
	newSet := setOf(d, "s", 3, 3)
	newSet.Annotations[v1alpha1.AnnotationRevision] = "2"
	d.Annotations[v1alpha1.AnnotationRevision] = "2"
	d.Spec.RollbackTo = &v1alpha1.RollbackConfig{}
	v := Decide(worldOf(d, old, newSet))
	if v.Do != Save || v.Deployment.Spec.RollbackTo != nil {
		t.Fatalf("Do = %s, rollbackTo = %v", v.Do, v.Deployment.Spec.RollbackTo)
	}
	template := old.Spec.Template.DeepCopy()
	delete(template.Labels, v1alpha1.LabelMachineTemplateHash)
	if diff := cmp.Diff(*template, v.Deployment.Spec.Template); diff != "" {
		t.Errorf("the template (-want +got):\n%s", diff)
	}
	want := map[string]string{"mine": "as it was", "was": "there", "only": "here", v1alpha1.AnnotationRevision: "3"}
	want[v1alpha1.AnnotationStrategy] = "RollingUpdate"
	if diff := cmp.Diff(want, v.Deployment.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if found := NewSet(v.Deployment, []*v1alpha1.MachineSet{old, newSet}); found != old {
		t.Errorf("the new set is %v", found)
	}
}

func TestFindRevision(t *testing.T) {
	now := metav1.NewTime(born)
	revised := func(name, revision string, deleted bool) *v1alpha1.MachineSet {
		set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if revision != "" {
			set.Annotations = map[string]string{v1alpha1.AnnotationRevision: revision}
		}
		if deleted {
			set.DeletionTimestamp = &now
		}
		return set
	}
	sets := map[string]*v1alpha1.MachineSet{
		"one": revised("one", "1", false), "four": revised("four", "4", false), "going": revised("going", "5", true),
		"six": revised("six", "6", false), "unknown": revised("unknown", "", false), "nonsense": revised("nonsense", "x", false),
	}
	var owned []*v1alpha1.MachineSet
	for set := range maps.Values(sets) {
		owned = append(owned, set)
	}
	for desired, want := range map[int64]string{0: "four", 1: "one", 4: "four", 5: "", 6: "six", 7: "", -1: ""} {
		called, found := findRevision(owned, desired)
		switch {
		case want == "" && found != nil, want != "" && found != sets[want]:
			t.Errorf("revision %d is %v, want %q", desired, found, want)
		case called == "":
			t.Errorf("revision %d has no name", desired)
		}
	}
	if _, found := findRevision(owned[:1], 0); found != nil {
		t.Errorf("before the only set there was %v", found.Name)
	}
}
