package ownerref

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

func deployment(uid types.UID) *v1alpha1.MachineDeployment {
	return &v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "n", UID: uid, ResourceVersion: "1"}}
}

// The root of a machine is found by owners, regardless of labels.
func TestRootOf(t *testing.T) {
	kind := v1alpha1.SchemeGroupVersion.WithKind("MachineDeployment")
	for name, tc := range map[string]struct {
		owner *v1alpha1.MachineDeployment // of the set
		shown []string
		lone  bool
		want  types.UID
		uid   types.UID // by RootUIDOf
	}{
		"a deployment":                        {owner: deployment("d-uid"), shown: []string{"set", "deployment"}, want: "d-uid", uid: "d-uid"},
		"a deployment that is not shown":      {owner: deployment("d-uid"), shown: []string{"set"}, uid: "d-uid"},
		"another deployment of the same name": {owner: deployment("old-uid"), shown: []string{"set", "deployment"}, uid: "old-uid"},
		"a set that is not shown":             {owner: deployment("d-uid"), shown: []string{"deployment"}},
		"a set without a controller":          {shown: []string{"set"}, want: "one", uid: "one"},
		"a machine without a controller":      {lone: true, shown: []string{"set"}, uid: "m"},
	} {
		t.Run(name, func(t *testing.T) {
			view, one := objectcache.NewView(), set("one")
			if tc.owner != nil {
				Adopt(one, tc.owner, kind)
			}
			m := machine("m", one)
			if tc.lone {
				m = machine("m", nil)
			}
			if slices.Contains(tc.shown, "set") {
				view.Sets.Apply(one, false)
			}
			if slices.Contains(tc.shown, "deployment") {
				view.Deployments.Apply(deployment("d-uid"), false)
			}
			root, ok := RootOf(view, m)
			if ok != (tc.want != "") || ok && root.GetUID() != tc.want {
				t.Errorf("root %v (%v), want %q", root, ok, tc.want)
			}
			if got := RootUIDOf(view, m); got != tc.uid {
				t.Errorf("the root's UID is %q, want %q", got, tc.uid)
			}
		})
	}
}
