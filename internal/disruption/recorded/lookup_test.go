package recorded

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// TestHas looks up the disruption of a machine on its MachineDeployment. Everything that is missing
// or cannot be read means none: a machine may be replaced only with a disruption.
func TestHas(t *testing.T) {
	deploymentKind, setKind := v1alpha1.SchemeGroupVersion.WithKind("MachineDeployment"), v1alpha1.SchemeGroupVersion.WithKind("MachineSet")
	for _, tc := range []struct {
		name          string
		recordedFor   types.UID
		forged        string // the annotation, instead of a disruption
		noDeployment  bool
		noSet, noRoot bool // the machine has none
		want          bool
	}{
		{name: "it has one", recordedFor: "m", want: true},
		{name: "another machine has one", recordedFor: "other"},
		{name: "the annotation cannot be read", forged: "{"},
		{name: "the MachineDeployment is not known", recordedFor: "m", noDeployment: true},
		{name: "the set has no MachineDeployment, and records no disruption itself", recordedFor: "m", noRoot: true},
		{name: "the machine has no set", recordedFor: "m", noSet: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			view := objectcache.NewView()
			d := &v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "n", UID: "d", ResourceVersion: "1"}}
			disruption.WriteDisruptions(d, []disruption.Disruption{{Name: "m", UID: tc.recordedFor}})
			if tc.forged != "" {
				d.Annotations[v1alpha1.AnnotationDisruptions] = tc.forged
			}
			set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "n", UID: "s", ResourceVersion: "1"}}
			if !tc.noRoot {
				set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d, deploymentKind)}
			}
			m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "n", UID: "m"}}
			m.Status.CurrentStatus.Phase = v1alpha1.MachineFailed
			if !tc.noSet {
				m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, setKind)}
			}
			if !tc.noDeployment {
				view.Deployments.Apply(d, false)
			}
			view.Sets.Apply(set, false)
			if got := Has(view, m); got != tc.want {
				t.Errorf("has a disruption: %t, want %t", got, tc.want)
			}
		})
	}
}

// TestOnChangeReportsSetsAlso: a MachineSet without a MachineDeployment is a root, too. An
// annotation that cannot be read names no machine.
func TestOnChangeReportsSetsAlso(t *testing.T) {
	view := objectcache.NewView()
	var reported []types.NamespacedName
	OnChange(view, func(machine types.NamespacedName) { reported = append(reported, machine) })
	set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "n", UID: "s", ResourceVersion: "1"}}
	disruption.WriteDisruptions(set, []disruption.Disruption{{Name: "m"}})
	view.Sets.Apply(set, false)
	forged := set.DeepCopy()
	forged.ResourceVersion = "2"
	forged.Annotations[v1alpha1.AnnotationDisruptions] = `[{"name":"a"},{"name":1}]`
	view.Sets.Apply(forged, false)
	want := types.NamespacedName{Namespace: "n", Name: "m"}
	if len(reported) != 2 || reported[0] != want || reported[1] != want {
		t.Errorf("reported %v, want m when it gets the disruption, and when it loses it", reported)
	}
}
