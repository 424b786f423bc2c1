package scale

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// TestFrozenConditionFollowsTheLabel: the reason of the controller that froze the set is kept as
// long as the label.
func TestFrozenConditionFollowsTheLabel(t *testing.T) {
	frozen := func(status corev1.ConditionStatus, reason string) *v1alpha1.MachineSetCondition {
		return &v1alpha1.MachineSetCondition{Type: v1alpha1.MachineSetFrozen, Status: status, Reason: reason}
	}
	reported := frozen(corev1.ConditionTrue, v1alpha1.ReasonOverShootingReplicaCount)
	for _, tc := range []struct {
		name, label, note string
		before, want      *v1alpha1.MachineSetCondition
	}{
		{"never", "", "", nil, nil},
		{"with a reason", "True", "", reported, reported},
		{"without a reason", "True", "", nil, frozen(corev1.ConditionTrue, v1alpha1.ReasonFreezeLabel)},
		{"by the fleet", "True", "too many", nil, reported},
		{"again", "True", "", frozen(corev1.ConditionFalse, "Thawed"), frozen(corev1.ConditionTrue, v1alpha1.ReasonFreezeLabel)},
		{"no label any more", "", "", reported, nil},
		{"only True freezes", "true", "", reported, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			set := &v1alpha1.MachineSet{}
			set.Labels = map[string]string{v1alpha1.LabelFreeze: tc.label}
			if tc.note != "" {
				set.Annotations = map[string]string{v1alpha1.AnnotationOvershooting: tc.note}
			}
			if tc.before != nil {
				set.Status.Conditions = []v1alpha1.MachineSetCondition{*tc.before}
			}
			is := status(World{Set: set})
			got := machinefacts.MachineSetCondition(&is, v1alpha1.MachineSetFrozen)
			if got != nil {
				got.LastTransitionTime, got.Message = metav1.Time{}, ""
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("condition (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNoteOfAFreezeEndsWithIt: a freeze that ends leaves nothing behind by which a later one of a
// user would be taken for the fleet's.
func TestNoteOfAFreezeEndsWithIt(t *testing.T) {
	const label, note, request = v1alpha1.LabelFreeze, v1alpha1.AnnotationOvershooting, v1alpha1.AnnotationUnfreeze
	for _, tc := range []struct {
		name                string
		labels, annotations map[string]string
		want                string // the labels and annotations that are left; "" means that the set is not written
	}{
		{"frozen", map[string]string{label: "True"}, map[string]string{note: "too many"}, ""},
		{"frozen by a user", map[string]string{label: "True"}, nil, ""},
		{"not frozen", nil, nil, ""},
		{"the end is requested", map[string]string{label: "True"}, map[string]string{note: "too many", request: ""}, "map[] map[]"},
		{"the label was removed by hand", nil, map[string]string{note: "too many"}, "map[] map[]"},
		{"the value of the label was changed", map[string]string{label: "no"}, map[string]string{note: "too many"}, "map[freeze:no] map[]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Labels: tc.labels, Annotations: tc.annotations}}
			v, requested := unfreeze(World{Set: set})
			got := ""
			if requested {
				got = fmt.Sprint(v.Set.Labels, v.Set.Annotations)
			}
			if got != tc.want || requested && v.Do != Save {
				t.Errorf("verdict %v with %q, want %q", v.Do, got, tc.want)
			}
		})
	}
}
