package machineset

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// hide moves a machine to another slot: this process sees no event of it.
func (b *bench) hide(name string) {
	b.controller.cfg.View.Machines.Remove(types.NamespacedName{Namespace: "n", Name: name}, "")
}

// onRequest calls f with the first request that it is meant for, and answers that with the error of
// f.
func (b *bench) onRequest(verb, name string, f func() error) {
	done := false
	b.server.Fault(func(r apiserver.Request) error {
		if done || r.Verb != verb || r.Name != name {
			return nil
		}
		done = true
		return f()
	})
}

// An orphan in another slot is adopted although the first attempt fails: no event causes another
// one. The set needs no machines, so that it does not list them for another reason.
func TestAnOrphanInAnotherSlotIsAdoptedByTheNextAttempt(t *testing.T) {
	for name, fails := range map[string]func(b *bench) error{
		"it changes meanwhile": func(b *bench) error {
			b.patchMachine("m", `{"metadata":{"labels":{"changed":"true"}}}`)
			b.hide("m")
			return nil
		},
		"it is deleted meanwhile, and created anew": func(b *bench) error {
			b.patchMachine("m", `{"metadata":{"finalizers":null}}`)
			b.delete("m")
			b.put("m")
			b.hide("m")
			return nil
		},
		"the API server fails": func(*bench) error { return errors.New("not now") },
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.put("m")
				b.hide("m")
				b.onRequest("patch", "m", func() error { return fails(b) })
				b.create(0)
				b.pass(10 * time.Minute)
				if m := b.machine("m"); !metav1.IsControlledBy(m, b.set()) {
					t.Errorf("its owners are %v", m.OwnerReferences)
				}
			})
		})
	}
}

// An orphan that is written at each attempt to adopt it does not keep the pass from creating
// machines, and is adopted when that ends.
func TestAnOrphanThatIsWrittenAllTheTimeStopsNothing(t *testing.T) {
	onBench(t, func(b *bench) {
		b.put("m")
		b.hide("m")
		attempts, writing, created := 0, false, 0
		b.server.Fault(func(r apiserver.Request) error {
			if writing || r.Verb != "patch" || r.Name != "m" {
				return nil
			}
			if attempts++; attempts == 4 { // the first of the second pass
				created = len(b.machines()) - 1
			}
			if attempts <= 4 { // each write also starts a pass here, where the view is that of all slots
				writing = true // it is such a request, too
				b.patchMachine("m", fmt.Sprintf(`{"metadata":{"labels":{"attempt":"%d"}}}`, attempts))
				b.hide("m")
				writing = false
			}
			return nil
		})
		b.create(2)
		b.pass(10 * time.Minute)
		if created != 2 {
			b.Errorf("the first pass has created %d machines, want 2", created)
		}
		living := slices.DeleteFunc(b.machines(), func(m *v1alpha1.Machine) bool { return m.DeletionTimestamp != nil })
		if len(living) != 2 || slices.ContainsFunc(living, func(m *v1alpha1.Machine) bool { return !metav1.IsControlledBy(m, b.set()) }) {
			b.Errorf("in the end there are %d machines, want 2 that are the set's", len(living))
		}
	})
}

// A set whose intents are predicted adopts nothing then, and looks again in its own pass.
func TestPredictLeavesOrphansToThePass(t *testing.T) {
	onBench(t, func(b *bench) {
		b.end()
		b.pass(0)
		b.put("m")
		b.hide("m")
		b.create(0, func(set *v1alpha1.MachineSet) { set.Finalizers = []string{v1alpha1.FinalizerName} })
		if predicted := b.controller.Predict(b.Context(), b.set(), false); predicted.ResourceVersion != b.set().ResourceVersion {
			t.Fatal("the set was written")
		}
		if !b.controller.observe(b.set()).MustListOrphans {
			t.Error("the pass does not look for orphans")
		}
	})
}

// A decision about a set ends after the event that the set is gone.
func TestNothingIsRememberedOfASetThatIsGone(t *testing.T) {
	remembered := func(b *bench) int {
		b.controller.mu.Lock()
		defer b.controller.mu.Unlock()
		return len(b.controller.done)
	}
	onBench(t, func(b *bench) {
		b.create(1)
		set, view := b.set(), b.controller.cfg.View
		b.server.Fault(func(r apiserver.Request) error {
			if r.Resource == "machines" && r.Verb == "create" {
				b.server.ShowIn(objectcache.NewView()) // the slot is lost
				view.Sets.Remove(objectcache.Key(set), "")
			}
			return nil
		})
		b.patch(`{"spec":{"replicas":2}}`)
		b.pass(time.Hour)
		if n := len(b.machines()); n != 2 {
			t.Fatalf("%d machines, want 2", n)
		}
		if n := remembered(b); n > 0 {
			t.Errorf("%d sets after the end of the pass, want none", n)
		}
		b.controller.Predict(b.Context(), set, false)
		if n := remembered(b); n > 0 {
			t.Errorf("%d sets after Predict, want none", n)
		}
	})
}
