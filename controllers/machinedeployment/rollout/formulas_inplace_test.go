package rollout

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

func TestTableOfSelecting(t *testing.T) {
	eachRow(t, "selecting.txt", func(r *row) {
		l := limits{replicas: r.number("replicas")}
		r.check("select", mostSelected(l, r.number("least"), r.number("available"), r.number("new"), r.number("updating")))
	})
}

func TestTableOfShedding(t *testing.T) {
	eachRow(t, "shedding.txt", func(r *row) {
		most, least := r.number("most"), r.number("least")
		names, all := r.tallies()
		shed(most, least, all[0], all[1:])
		for i, old := range all[1:] {
			r.check(names[i+1], old.size)
		}
		twice := sizesOf(all)
		if shed(most, least, all[0], all[1:]); sizesOf(all) != twice {
			r.Errorf("decided again on the same machines: %s, and first %s", sizesOf(all), twice)
		}
	})
}

// TestTableOfSettling reads of each set its size, how many machines the API server has of it and
// how many of those have just come, and whether it is closed.
func TestTableOfSettling(t *testing.T) {
	eachRow(t, "settling.txt", func(r *row) {
		s := &sets{w: World{Live: &Live{Machines: map[types.UID][]*metav1.ObjectMeta{}}}}
		for len(r.words) > 0 {
			name, numbers := r.words[0], strings.Split(r.words[1], "/")
			r.words = r.words[2:]
			var size, there, come int32
			if _, err := fmt.Sscan(strings.Join(numbers, " "), &size, &there, &come); err != nil {
				r.Fatal(err)
			}
			set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{}}}
			if len(r.words) > 0 && r.words[0] == "closed" {
				set.Labels[v1alpha1.LabelScaleUpDisabled], r.words = "true", r.words[1:]
			}
			for i := range there {
				m := &metav1.ObjectMeta{Name: fmt.Sprint(name, i), Labels: map[string]string{}}
				if i < come {
					m.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.UpdateResultSuccessful
				}
				s.w.Live.Machines[set.UID] = append(s.w.Live.Machines[set.UID], m)
			}
			s.old = append(s.old, &tally{set: set, size: size})
		}
		inPlaceUpdates{s}.settle()
		for _, t := range s.old {
			r.check(t.set.Name, t.size)
		}
	})
}

// withoutTarget returns a world whose target cluster is not available, or is pending.
func withoutTarget(w World, problem string, pending bool) World {
	w.TargetProblem, w.TargetPending = problem, pending
	return w
}

// inPlace returns a deployment like d whose machines are updated in place.
func inPlace(d *v1alpha1.MachineDeployment) *v1alpha1.MachineDeployment {
	d, one := d.DeepCopy(), intstr.FromInt32(1)
	d.Annotations[v1alpha1.AnnotationRevision] = "1"
	d.Spec.Strategy = v1alpha1.MachineDeploymentStrategy{
		Type: v1alpha1.InPlaceUpdateMachineDeploymentStrategyType,
		InPlaceUpdate: &v1alpha1.InPlaceUpdateMachineDeployment{
			UpdateConfiguration: v1alpha1.UpdateConfiguration{MaxUnavailable: &one, MaxSurge: &one},
			OrchestrationType:   v1alpha1.OrchestrationTypeAuto,
		},
	}
	return d
}
