package machinedeployment

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// breaks has the deployment's only set be one that cannot be decoded, or one that can.
func (b *bench) breaks(set string, undecodable bool) {
	b.Helper()
	b.server.SetUndecodable("machinesets", "n", set, undecodable)
	b.pass(time.Minute)
}

// invalid is the condition Valid of the deployment; nil when there is none.
func (b *bench) invalid() *v1alpha1.MachineDeploymentCondition {
	conditions := b.deployment().Status.Conditions
	i := slices.IndexFunc(conditions, func(c v1alpha1.MachineDeploymentCondition) bool { return c.Type == v1alpha1.MachineDeploymentValid })
	if i < 0 {
		return nil
	}
	return &conditions[i]
}

func TestNoSetIsCreatedNextToOneThatCannotBeDecoded(t *testing.T) {
	for name, patch := range map[string]string{
		"nothing changes":          `{}`,
		"the template changes":     `{"spec":{"template":{"spec":{"class":{"name":"new"}}}}}`,
		"the replicas change":      `{"spec":{"replicas":5}}`,
		"a rollback is requested":  `{"spec":{"rollbackTo":{"revision":1}}}`,
		"the selector has changed": `{"spec":{"selector":{"matchLabels":{"name":"d","more":"d"}},"template":{"metadata":{"labels":{"more":"d"}}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.create()
				set := b.mine()[0].Name
				b.breaks(set, true)
				before := b.server.Get("machinesets", "n", set).GetResourceVersion()
				b.patch("%s", patch)
				b.pass(time.Hour)
				all := b.server.List("machinesets")
				if len(all) != 1 || all[0].GetResourceVersion() != before {
					t.Fatalf("there are %d sets, the first of version %s; want 1 of version %s", len(all), all[0].GetResourceVersion(), before)
				}
				if c := b.invalid(); c == nil || c.Status != corev1.ConditionFalse || c.Reason != v1alpha1.EventUndecodable {
					t.Errorf("condition %+v, want one that says why nothing is done", c)
				}
				b.breaks(set, false)
				if c := b.invalid(); c != nil {
					t.Errorf("condition %+v after the set was repaired, want none", c)
				}
			})
		})
	}
}

func TestASetThatCannotBeDecodedIsDeletedWithItsDeployment(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create()
		set := b.mine()[0].Name
		b.server.Merge("machinesets", "n", set, fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, v1alpha1.FinalizerName))
		b.breaks(set, true)
		b.server.Delete("machinedeployments", "n", "d")
		b.pass(time.Minute)
		remaining := b.server.Get("machinesets", "n", set)
		if remaining == nil || remaining.GetDeletionTimestamp() == nil {
			t.Errorf("the set is %v, want one that is being deleted", remaining)
		}
		if d := b.deployment(); !slices.Contains(d.Finalizers, v1alpha1.FinalizerName) {
			t.Error("the finalizer of the deployment is removed before that of its set")
		}
	})
}

// A set that has no controller and cannot be decoded is adopted by its metadata: it may be the one
// that is wanted.
func TestASetWithoutControllerThatCannotBeDecodedIsAdopted(t *testing.T) {
	onBench(t, func(b *bench) {
		b.put(func(*v1alpha1.MachineSet) {})
		b.server.SetUndecodable("machinesets", "n", "s", true)
		b.create()
		b.pass(time.Minute)
		if !metav1.IsControlledBy(b.set(), b.deployment()) {
			t.Error("it is not adopted")
		}
		if all := b.server.List("machinesets"); len(all) != 1 {
			t.Errorf("there are %d sets, want none next to it", len(all))
		}
	})
}

func TestTheNewSetHasTheNameOfOneThatCannotBeDecoded(t *testing.T) {
	name := ""
	onBench(t, func(b *bench) {
		b.create()
		name = b.mine()[0].Name
	})
	onBench(t, func(b *bench) {
		b.put(func(s *v1alpha1.MachineSet) { s.Name, s.Labels = name, nil })
		b.server.SetUndecodable("machinesets", "n", name, true)
		b.create()
		if mine := b.mine(); len(mine) != 1 || mine[0].Name == name {
			t.Errorf("the deployment's sets are %v, want one of another name than %s", mine, name)
		}
	})
}

// There are never more machines than replicas and maxSurge allow, whether or not all of them can be
// decoded.
func TestAMachineThatCannotBeDecodedCountsInARollout(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create(func(d *v1alpha1.MachineDeploymentSpec) {
			surge, unavailable := intstr.FromInt32(1), intstr.FromInt32(0)
			d.Strategy = v1alpha1.MachineDeploymentStrategy{
				Type: v1alpha1.RollingUpdateMachineDeploymentStrategyType,
				RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{
					UpdateConfiguration: v1alpha1.UpdateConfiguration{MaxSurge: &surge, MaxUnavailable: &unavailable},
				},
			}
		})
		old := b.mine()[0]
		b.runs("m1")
		b.runs("m2")
		b.pass(time.Minute)
		b.patch(`{"spec":{"template":{"spec":{"class":{"name":"new"}}}}}`)
		b.pass(time.Minute)
		b.runs("n1")
		b.pass(time.Minute)
		b.server.Delete("machines", "n", "m1") // as its set does
		b.server.SetUndecodable("machines", "n", "m1", true)
		b.pass(time.Minute)
		for _, set := range b.mine() {
			if set.Spec.Replicas != 1 { // m2 and n1, and m1 still has its VM
				t.Errorf("set %s (old: %t) has a size of %d machines, want 1", set.Name, set.UID == old.UID, set.Spec.Replicas)
			}
		}
	})
}
