package rollout

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/validation"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// number draws a number that a client may have written.
func number(t *rapid.T, name string) int32 {
	return rapid.SampledFrom([]int32{
		math.MinInt32, -3, -1, 0, 1, 2, 5, validation.MaxReplicas, validation.MaxReplicas + 1, math.MaxInt32 - 1, math.MaxInt32,
	}).Draw(t, name)
}

func limit(t *rapid.T, name string) *intstr.IntOrString {
	if rapid.Bool().Draw(t, name+" is text") {
		text := rapid.SampledFrom([]string{
			"", "%", "-1%", "0%", "25%", "100%", "101%", "2147483647%", "9223372036854775807%", "99999999999999999999%", "many",
		})
		return &intstr.IntOrString{Type: intstr.String, StrVal: text.Draw(t, name)}
	}
	return new(intstr.FromInt32(number(t, name)))
}

// Every number that decodes gets a verdict. Where a deployment is acted on, all sets have sizes
// that a set may have, and together no more than replicas and surge.
func TestAbsurdNumbers(t *testing.T) {
	worlds.Check(t, 20, func(t *rapid.T) {
		d := deployment(number(t, "replicas"))
		d.Spec.MinReadySeconds = number(t, "min ready")
		d.Spec.AutoPreserveFailedMachineMax = number(t, "preserve")
		if rapid.Bool().Draw(t, "limited") {
			d.Spec.RevisionHistoryLimit, d.Spec.ProgressDeadlineSeconds = new(number(t, "history")), new(number(t, "deadline"))
			d.Status.CollisionCount = new(number(t, "collisions"))
		}
		update := v1alpha1.UpdateConfiguration{MaxSurge: limit(t, "surge"), MaxUnavailable: limit(t, "unavailable")}
		switch rapid.IntRange(0, 3).Draw(t, "strategy") {
		case 0:
			d.Spec.Strategy = v1alpha1.MachineDeploymentStrategy{
				Type:          v1alpha1.RollingUpdateMachineDeploymentStrategyType,
				RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{UpdateConfiguration: update},
			}
		case 1:
			d.Spec.Strategy = v1alpha1.MachineDeploymentStrategy{
				Type:          v1alpha1.InPlaceUpdateMachineDeploymentStrategyType,
				InPlaceUpdate: &v1alpha1.InPlaceUpdateMachineDeployment{UpdateConfiguration: update, OrchestrationType: v1alpha1.OrchestrationTypeAuto},
			}
		case 2:
			d.Spec.Strategy.Type = v1alpha1.RecreateMachineDeploymentStrategyType
		}
		d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.AvailableReplicas = number(t, "was"), number(t, "updated"), number(t, "available")
		var sets []*v1alpha1.MachineSet
		for i := range rapid.IntRange(0, 3).Draw(t, "sets") {
			standing := int32(rapid.IntRange(0, 3).Draw(t, "standing"))
			set := older(types.UID(fmt.Sprint("old", i)), time.Duration(i+1)*time.Hour, standing)
			set.Spec.Replicas = number(t, "size")
			set.Annotations[v1alpha1.AnnotationDesiredReplicas] = fmt.Sprint(number(t, "desired"))
			set.Annotations[v1alpha1.AnnotationMaxReplicas] = fmt.Sprint(number(t, "max"))
			set.Annotations[v1alpha1.AnnotationRevision] = rapid.SampledFrom([]string{"1", "-1", "9223372036854775807", "x"}).Draw(t, "revision")
			sets = append(sets, set)
		}
		w := worldOf(d, sets...)
		w.CountMinReady = rapid.Bool().Draw(t, "count")
		v := decided(&w)
		if len(validation.ValidateMachineDeployment(d)) > 0 {
			if v.Do != Rest || !strings.HasPrefix(reported(v.Deployment.Status, v1alpha1.MachineDeploymentValid), "False/") {
				t.Fatalf("replicas %d, %+v: Do = %s and Valid is %q",
					d.Spec.Replicas, d.Spec.Strategy, v.Do, reported(v.Deployment.Status, v1alpha1.MachineDeploymentValid))
			}
			return
		}
		for _, set := range v.Sets {
			if n := set.Spec.Replicas; n < 0 || n > validation.MaxReplicas {
				t.Fatalf("MachineSet %s has a size of %d machines", set.Name, n)
			}
		}
		if v.Do == Create && len(sets) == 0 && v.Sets[0].Spec.Replicas != d.Spec.Replicas {
			t.Fatalf("the first MachineSet has a size of %d machines, want %d", v.Sets[0].Spec.Replicas, d.Spec.Replicas)
		}
	})
}

// liveOf returns what the API server shows if it has these machines.
func liveOf(machines map[types.UID][]*v1alpha1.Machine) *Live {
	live := &Live{Machines: map[types.UID][]*metav1.ObjectMeta{}}
	for set, all := range machines {
		for _, m := range all {
			live.Machines[set] = append(live.Machines[set], m.ObjectMeta.DeepCopy())
		}
	}
	return live
}

// decided answers the reads that Decide requests, and returns the first other verdict.
func decided(w *World) (v Verdict) {
	for range 10 {
		switch v = Decide(*w); v.Do { //nolint:exhaustive // with others it has come to an end
		case Save:
			w.Deployment = v.Deployment
		case ListSets:
			w.LiveSets = map[types.UID]bool{}
			for _, set := range w.Owned {
				w.LiveSets[set.UID] = true
			}
		case ReadLive:
			w.Live = liveOf(w.Machines)
		default:
			return v
		}
	}
	return v
}
