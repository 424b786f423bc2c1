package machineset

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// breaks has a machine of the set be one that cannot be decoded, and returns it.
func (b *bench) breaks(name string) *v1alpha1.Machine {
	b.Helper()
	b.server.SetUndecodable("machines", "n", name, true)
	b.pass(time.Minute)
	return b.machine(name)
}

func (b *bench) standingUIDs() (uids []types.UID) {
	for _, m := range b.machines() {
		if m.DeletionTimestamp == nil {
			uids = append(uids, m.UID)
		}
	}
	return uids
}

func TestAMachineThatCannotBeDecodedCounts(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create(3)
		b.pass(time.Minute)
		bad := b.breaks(b.machines()[1].Name)
		b.pass(time.Hour)
		if n := b.standing(); n != 3 {
			t.Fatalf("%d machines, want 3: none is created for one that cannot be decoded", n)
		}
		if got := b.set().Status.Replicas; got != 3 {
			t.Errorf("status.replicas is %d, want 3", got)
		}
		b.patch(`{"spec":{"replicas":5}}`)
		b.pass(time.Minute)
		if n := b.standing(); n != 5 {
			t.Fatalf("%d machines, want 5: one that cannot be decoded does not keep the set from being scaled up", n)
		}
		b.patch(`{"spec":{"replicas":1}}`)
		b.pass(time.Minute)
		if got := b.standingUIDs(); !slices.Equal(got, []types.UID{bad.UID}) {
			t.Fatalf("%v are left, want %s: nothing is known of how useful it is", got, bad.UID)
		}
		b.server.SetUndecodable("machines", "n", bad.Name, false)
		b.pass(time.Hour)
		if got := b.standingUIDs(); !slices.Equal(got, []types.UID{bad.UID}) {
			t.Errorf("%v are left after it was repaired, want %s", got, bad.UID)
		}
	})
}

func TestUndecodableMachineIsDeletedWithAllOthers(t *testing.T) {
	for name, end := range map[string]func(b *bench){
		"scaled to zero": func(b *bench) { b.patch(`{"spec":{"replicas":0}}`) },
		"deleted": func(b *bench) {
			b.server.Delete("machinesets", "n", "set")
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.create(2)
				b.pass(time.Minute)
				bad := b.breaks(b.machines()[0].Name)
				end(b)
				b.pass(time.Minute)
				if n := b.standing(); n != 0 {
					t.Errorf("%d machines are left, want none", n)
				}
				if remaining := b.machine(bad.Name); !slices.Contains(remaining.Finalizers, v1alpha1.FinalizerName) {
					t.Errorf("its finalizers are %v: its VM would be forgotten", remaining.Finalizers)
				}
				if set := b.set(); set.DeletionTimestamp != nil && !slices.Contains(set.Finalizers, v1alpha1.FinalizerName) {
					t.Errorf("the set is released before its machine")
				}
			})
		})
	}
}

// A client that lowers the replicas names the machine to delete.
func TestNamedUndecodableMachineIsDeletedFirst(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create(3)
		b.pass(time.Minute)
		named := b.machines()[1].Name
		b.patchMachine(named, `{"metadata":{"annotations":{"`+v1alpha1.AnnotationPriority+`":"`+v1alpha1.PriorityTriggered+`"}}}`)
		b.breaks(named)
		b.patch(`{"spec":{"replicas":2}}`)
		b.pass(time.Minute)
		if b.machine(named).DeletionTimestamp == nil || b.standing() != 2 {
			t.Errorf("%d machines are left, and the one that was named is among them", b.standing())
		}
	})
}

func TestAMachineThatCannotBeDecodedIsNotWritten(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create(2)
		b.pass(time.Minute)
		bad := b.breaks(b.machines()[0].Name)
		b.patch(`{"spec":{"template":{"spec":{"nodeTemplate":{"metadata":{"labels":{"new":"label"}}}}}}}`)
		b.pass(time.Hour)
		for _, m := range b.machines() {
			isNew := m.Spec.NodeTemplateSpec.Labels["new"] == "label"
			if m.UID == bad.UID && (isNew || m.ResourceVersion != bad.ResourceVersion) {
				t.Errorf("it was written: %+v", m)
			}
			if m.UID != bad.UID && !isNew {
				t.Errorf("machine %s has not got the new label", m.Name)
			}
		}
	})
}

// A machine without an owner that cannot be decoded is adopted by its metadata, and none is created
// instead; it prevents no set of the namespace from being reconciled.
func TestAnOrphanThatCannotBeDecodedIsAdopted(t *testing.T) {
	for name, tc := range map[string]struct {
		label   string
		adopted bool
	}{"it matches": {"set", true}, "it does not": {"other", false}} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.put("orphan", func(m *v1alpha1.Machine) { m.Labels[v1alpha1.LabelName] = tc.label })
				b.server.SetUndecodable("machines", "n", "orphan", true)
				b.create(2)
				b.pass(time.Minute)
				if got := metav1.IsControlledBy(b.machine("orphan"), b.set()); got != tc.adopted {
					t.Errorf("adopted: %t, want %t", got, tc.adopted)
				}
				want := 3 // with the orphan
				if tc.adopted {
					want = 2
				}
				if n := b.standing(); n != want {
					t.Errorf("%d machines, want %d", n, want)
				}
			})
		})
	}
}

// The name of a machine that is about to be created can belong to one that cannot be decoded and is
// not the set's.
func TestNameIsInUseByAnUndecodableMachine(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create(0)
		b.pass(time.Minute)
		name := machinefacts.Name("set", b.set().UID, 0)
		b.put(name, func(m *v1alpha1.Machine) { m.Labels = nil })
		b.server.SetUndecodable("machines", "n", name, true)
		b.patch(`{"spec":{"replicas":1}}`)
		b.pass(time.Minute)
		if n := len(b.machines()); n != 2 {
			t.Errorf("%d machines, want 2: the other one, and the set's under another name", n)
		}
	})
}

// The part of it that another client has changed may not be all that is invalid.
func TestUndecodableMachineIsNeitherReleasedNorUnpreserved(t *testing.T) {
	for name, patch := range map[string]string{
		"it does not match any more": `{"metadata":{"labels":null}}`,
		"it is preserved":            `{"metadata":{"annotations":{"` + v1alpha1.AnnotationPreserve + `":"` + v1alpha1.PreserveAuto + `"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.create(2)
				b.pass(time.Minute)
				bad := b.breaks(b.machines()[0].Name)
				b.patchMachine(bad.Name, patch)
				before := b.machine(bad.Name).ResourceVersion
				b.pass(time.Hour)
				if after := b.machine(bad.Name); after.ResourceVersion != before {
					t.Errorf("it was written: %+v", after.ObjectMeta)
				}
			})
		})
	}
}
