package slotlabel

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// A machine is moved to a tree of another replica's slot between the read of the namespace and the
// write of its label: the write must not take effect, because that replica may label and reconcile
// it at once.
func TestObjectThatChangesBeforeItsWriteIsNotLabeled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		moved := meta(policy.Machine, "m", "", "t")
		b := stillBench(t, []int{1},
			meta(policy.Deployment, "1", "1", ""), meta(policy.Set, "s", "1", "1"),
			meta(policy.Deployment, "2", "2", ""), meta(policy.Set, "t", "2", "2"), meta(policy.Machine, "m", "", "s"))
		move := sync.OnceFunc(func() {
			b.control.Edit("machines", "n", "m", func(u *unstructured.Unstructured) { u.SetOwnerReferences(moved.OwnerReferences) })
		})
		b.control.Fault(func(r apiserver.Request) error {
			if r.What() == "patch machines" {
				move()
			}
			return nil
		})
		b.run()
		time.Sleep(time.Minute)
		synctest.Wait()
		if diff := cmp.Diff(map[string]string{"1": "1", "s": "1", "2": "2", "t": "2", "m": ""}, b.labels()); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
	})
}

// What a rejected key waits for may happen while it is decided whether it may run: no event
// follows.
func TestKeyThatMayRunWhileItIsRejectedIsEnqueuedAgain(t *testing.T) {
	var again []string
	var a *Admission
	a = NewAdmission(func(policy.Kind, types.NamespacedName) bool {
		a.Retry("n")
		return false
	})
	g := gateOf(a, policy.Machine, runner.Open[types.NamespacedName]{}, func(key types.NamespacedName) { again = append(again, key.Name) })
	if _, _, ok := g.Admit(t.Context(), types.NamespacedName{Namespace: "n", Name: "a"}); ok {
		t.Fatal("admitted")
	}
	if !slices.Equal(again, []string{"a"}) {
		t.Errorf("enqueued again: %v, want a", again)
	}
}

// The watch of a replica shows an unlabeled machine before its cache shows the machine's set, in
// whose slot it is labeled.
func TestUnlabeledObjectIsLabeledWhenItsParentIsCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := meta(policy.Set, "s", "1", "1")
		b := stillBench(t, []int{1}, meta(policy.Deployment, "1", "1", ""), meta(policy.Machine, "3-m", "", "s"))
		b.run()
		time.Sleep(time.Minute)
		apiserver.Add(b.control, set)
		b.labeler.Seen(policy.Set, set)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := b.labels()["3-m"]; got != "1" {
			t.Errorf("label %q, want 1", got)
		}
	})
}
