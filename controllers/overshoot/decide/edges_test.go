package decide

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// TestFreezesIfEachFactHolds has the cases in which one of the facts differs that a freeze
// requires.
func TestFreezesIfEachFactHolds(t *testing.T) {
	withOrdinal := func(text string) func(m *v1alpha1.Machine) {
		return func(m *v1alpha1.Machine) { m.Annotations = map[string]string{v1alpha1.AnnotationOrdinal: text} }
	}
	forged := foreign(5, 1)
	withOrdinal("0")(forged[0])
	unnumbered := machineOf("s", uid, machinefacts.Name("s", uid, 0), 9)
	newestFirst := foreign(0, 6)
	slices.Reverse(newestFirst)
	for _, tc := range []struct {
		name          string
		before, after state
		want          string // part of the reason; "" means no freeze
	}{
		{
			"etcd was restored, and the set has another size with the same generation",
			state{generation: 2, replicas: 5, machines: created(0, 9)},
			state{generation: 2, replicas: 3, machines: created(0, 10)},
			"",
		},
		{
			"etcd was restored, and its MachineDeployment has another size with the same generation",
			state{generation: 1, replicas: 4, machines: created(0, 4), most: 6, other: 4},
			state{generation: 2, replicas: 6, machines: created(0, 6), most: 5, other: 4},
			"",
		},
		{
			"is enlarged while the other sets of its MachineDeployment become smaller",
			state{generation: 1, replicas: 4, machines: created(0, 4), most: 5, other: 3},
			state{generation: 2, replicas: 6, machines: created(0, 6), most: 5},
			"",
		},
		{
			"is enlarged while its MachineDeployment has exactly the number that is too high",
			state{generation: 1, replicas: 4, machines: created(0, 4), most: 5, other: 3},
			state{generation: 2, replicas: 6, machines: created(0, 5), most: 5, other: 2},
			"have 7 machines",
		},
		{
			"is enlarged, has too many, and no MachineDeployment",
			state{generation: 1, replicas: 3, machines: created(0, 9)},
			state{generation: 2, replicas: 4, machines: created(0, 10)},
			"",
		},
		{
			"has too many of another client, in any order, and gets none",
			state{generation: 1, replicas: 3, machines: newestFirst},
			state{generation: 1, replicas: 3, machines: foreign(0, 6)},
			"",
		},
		{
			"has too many of another client, and creates its first own one",
			state{generation: 1, replicas: 3, machines: foreign(0, 5)},
			state{generation: 1, replicas: 3, machines: append(foreign(0, 5), created(0, 1)...)},
			"has created 1",
		},
		{
			"gets a new machine with an ordinal that it has not created",
			state{generation: 1, replicas: 3, machines: created(0, 5)},
			state{generation: 1, replicas: 3, machines: append(created(0, 5), forged...)},
			"has created 1",
		},
		{
			"gets a new machine with the name of an earlier one, and without an ordinal",
			state{generation: 1, replicas: 3, machines: created(1, 5)},
			state{generation: 1, replicas: 3, machines: append(created(1, 5), unnumbered)},
			"has created 1",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			verdicts := tc.after.count(tc.before.count(Count{}).Count()).Decide(byDefault)
			switch {
			case tc.want == "" && len(verdicts) > 0:
				t.Errorf("decided %+v, want nothing", verdicts)
			case tc.want != "" && (len(verdicts) != 1 || !verdicts[0].Freeze || !strings.Contains(verdicts[0].Why, tc.want)):
				t.Errorf("decided %+v, want a freeze with %q", verdicts, tc.want)
			}
		})
	}
}

// A user has ended the freeze and has left the annotation.
func TestSetThatIsNotFrozenHasNoFreezeToEnd(t *testing.T) {
	is := state{replicas: 3, machines: created(0, 3), change: func(set *v1alpha1.MachineSet) {
		metav1.SetMetaDataAnnotation(&set.ObjectMeta, v1alpha1.AnnotationOvershooting, "too many")
	}}
	if verdicts := is.count(Count{}).Decide(byDefault); len(verdicts) > 0 {
		t.Errorf("decided %+v, want nothing", verdicts)
	}
}

// Machines without a MachineSet, and those of a MachineSet that is not judged, count for no set.
func TestMachinesOfNoJudgedSetAreNotCounted(t *testing.T) {
	is := state{replicas: 3, machines: created(0, 3)}
	alone, ofAnother := machineOf("s", uid, "alone", 1), machineOf("x", "not-judged", "of-another", 1)
	alone.OwnerReferences = nil
	c := is.count(Count{})
	c.Add(alone)
	c.Add(ofAnother)
	if got := c.Count().sets[uid]; got.live != 3 || !got.newest.Equal(start.Add(2*time.Second)) {
		t.Errorf("counted %+v, want 3 machines", got)
	}
}
