package recorded

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

func TestOnChange(t *testing.T) {
	view := objectcache.NewView()
	var reported []string
	OnChange(view, func(machine types.NamespacedName) { reported = append(reported, machine.Name) })
	show := func(version string, disruptions ...string) []string {
		reported = nil
		d := &v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "n", UID: "d-uid"}}
		d.ResourceVersion = version
		var all []disruption.Disruption
		for _, name := range disruptions {
			all = append(all, disruption.Disruption{Name: name})
		}
		disruption.WriteDisruptions(d, all)
		view.Deployments.Apply(d, false)
		return reported
	}
	if got := show("1", "a"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("a has one: reported %v", got)
	}
	if got := show("2", "a"); len(got) > 0 {
		t.Errorf("nothing has changed: reported %v", got)
	}
	if got := show("3", "b"); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("a has no disruption any more, and b has one: reported %v", got)
	}
	if got := show("4"); !slices.Equal(got, []string{"b"}) {
		t.Errorf("b has no disruption any more: reported %v", got)
	}
	reported = nil
	view.Deployments.Remove(types.NamespacedName{Namespace: "n", Name: "d"}, "")
	if len(reported) > 0 {
		t.Errorf("the root was deleted: reported %v", reported)
	}
}
