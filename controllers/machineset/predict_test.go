package machineset

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// TestPredict: a new size and the intents that follow from it are one write, and the machines come
// of it all the same.
func TestPredict(t *testing.T) {
	for name, tc := range map[string]struct {
		replicas int32
		want     string
	}{
		"more":  {4, `"create":[2,3]`},
		"fewer": {1, `"delete":`},
		"none":  {0, `"delete":`},
		"same":  {2, ``},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.create(2)
				set := b.set().DeepCopy()
				set.Spec.Replicas = tc.replicas
				before := set.DeepCopy()
				predicted := b.controller.Predict(b.Context(), set, false)
				if !reflect.DeepEqual(set, before) {
					t.Error("the set that was given has changed")
				}
				intents := predicted.Annotations[v1alpha1.AnnotationIntents]
				if !strings.Contains(intents, tc.want) || predicted.Spec.Replicas != tc.replicas || predicted.ResourceVersion != set.ResourceVersion {
					t.Errorf("predicted are %d replicas, version %s, and %s; want %s",
						predicted.Spec.Replicas, predicted.ResourceVersion, intents, tc.want)
				}
				b.server.Forget()
				b.patch(`{"metadata":{"resourceVersion":%q,"annotations":{%q:%q}},"spec":{"replicas":%d}}`,
					predicted.ResourceVersion, v1alpha1.AnnotationIntents, intents, tc.replicas)
				b.pass(time.Minute)
				if n := b.standing(); n != int(tc.replicas) {
					t.Errorf("%d machines, want %d", n, tc.replicas)
				}
				if written := b.server.Count("patch machinesets"); written > 1 { // to strike the intents off
					t.Errorf("the set was written %d times, want at most once", written)
				}
			})
		})
	}
}

// standing is how many machines are not on their way out.
func (b *bench) standing() (n int) {
	for _, m := range b.machines() {
		if m.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

// A set that is being reconciled at this moment is predicted when its pass ends soon.
func TestBusySetIsNotPredicted(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create(2)
		set := b.set().DeepCopy()
		set.Spec.Replicas = 3
		release := b.controller.lock(set.UID)
		if got := b.controller.Predict(b.Context(), set, false); got != set {
			t.Errorf("predicted is %v", got.Annotations)
		}
		time.AfterFunc(busyWait/2, release)
		if got := b.controller.Predict(b.Context(), set, false); got == set {
			t.Error("nothing is predicted when its pass has ended")
		}
		set.Spec.Template.Spec.Class.Name = "other"
		if got := b.controller.Predict(b.Context(), set, false); got == set {
			t.Error("nothing is predicted of a set whose class has to be checked")
		}
	})
}

// TestIntentsOfASetInARolloutAreRemovedLater: with the next ones, or after a while.
func TestIntentsOfASetInARolloutAreRemovedLater(t *testing.T) {
	for name, tc := range map[string]struct {
		rolling string
		stand   bool // after a moment
	}{
		"rolled":              {v1alpha1.RollingTrue, true},
		"rolled before":       {v1alpha1.RollingFalse, false},
		"it was not declared": {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.create(1, func(s *v1alpha1.MachineSet) {
					s.Annotations = map[string]string{v1alpha1.AnnotationRolling: tc.rolling}
				})
				stand := func() bool { return strings.Contains(b.set().Annotations[v1alpha1.AnnotationIntents], "create") }
				b.patch(`{"spec":{"replicas":2}}`)
				b.pass(keepObserved / 2)
				if n := len(b.machines()); n != 2 || stand() != tc.stand {
					t.Errorf("%d machines, intents stand: %v; want 2, %v", n, stand(), tc.stand)
				}
				ended := b.set().DeepCopy()
				ended.Annotations[v1alpha1.AnnotationRolling] = v1alpha1.RollingFalse
				if predicted := b.controller.Predict(b.Context(), ended,
					false); strings.Contains(predicted.Annotations[v1alpha1.AnnotationIntents], "create") {
					t.Errorf("they are not removed at the end of the rollout: %s", predicted.Annotations[v1alpha1.AnnotationIntents])
				}
				b.pass(keepObserved)
				if stand() {
					t.Errorf("they stand still: %s", b.set().Annotations[v1alpha1.AnnotationIntents])
				}
			})
		})
	}
}

// TestMachineOfASetInARolloutIsDeletedAtOnce: another one is created, and not the same one again.
func TestMachineOfASetInARolloutIsDeletedAtOnce(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create(0, func(s *v1alpha1.MachineSet) {
			s.Annotations = map[string]string{v1alpha1.AnnotationRolling: v1alpha1.RollingTrue}
		})
		b.patch(`{"spec":{"replicas":1}}`)
		b.pass(time.Second)
		first := b.machines()[0].Name
		b.server.Delete("machines", "n", first)
		b.pass(time.Second)
		b.patchMachine(first, `{"metadata":{"finalizers":null}}`)
		b.pass(time.Minute)
		if remaining := b.machines(); len(remaining) != 1 || remaining[0].Name == first {
			t.Errorf("there are %v, want one that is not %s", remaining, first)
		}
	})
}
