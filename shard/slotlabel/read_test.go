package slotlabel

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// idleBench returns a bench whose labeler does not run before the test ends.
func idleBench(t *testing.T, held []int, objects ...*metav1.PartialObjectMetadata) *bench {
	t.Helper()
	b := stillBench(t, held, objects...)
	t.Cleanup(func() { b.labeler.runner.Run(t.Context()) }) // which has ended: this ends the queue
	return b
}

// A read that began before a call may not show what the caller has seen. All calls during it share
// the next one.
func TestCallsDuringAReadShareTheNextOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, answer := apiserver.Recording(meta(policy.Deployment, "1", "", "")), make(chan struct{})
		server.Fault(func(r apiserver.Request) error {
			if r.What() == "list machines" {
				<-answer
			}
			return nil
		})
		r := &reader{metadata: server.Metadata(), turns: make(chan struct{},
			readsAtOnce), rounds: map[string]*round{}, plant: func(objects []policy.Object) *snapshot {
			return &snapshot{forest: policy.Plant(objects, nil)}
		}}
		var running sync.WaitGroup
		read := func(calls int) {
			for range calls {
				running.Go(func() {
					if _, err := r.read(t.Context(), "n"); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
			}
		}
		read(1)
		read(1) // begins after the first one
		answer <- struct{}{}
		synctest.Wait()
		read(2)
		close(answer)
		running.Wait()
		if lists := server.Count("list machines"); lists != 3 {
			t.Errorf("%d reads for 4 calls, of which the last two share one: want 3", lists)
		}
	})
}

func TestReadsThatFail(t *testing.T) {
	for name, test := range map[string]struct {
		control, machines string // what fails the first time
		lists             int    // of metadata
	}{
		"a kind":                 {"list machinesets", "", 3},
		"parents with selectors": {"", "list machinesets", 3},
	} {
		b := idleBench(t, []int{1}, meta(policy.Machine, "1", "", "1-set"), meta(policy.Set, "1-set", "", ""), meta(policy.Machine, "2", "", ""))
		for server, what := range map[*apiserver.Server]string{b.control: test.control, b.machines: test.machines} {
			failed := false
			server.Fault(func(r apiserver.Request) error {
				if failed || r.What() != what {
					return nil
				}
				failed = true
				return errors.New("away")
			})
		}
		if _, err := b.labeler.reader.read(t.Context(), "n"); err == nil {
			t.Errorf("%s: no error", name)
		}
		if lists := b.control.Count("list *"); lists != test.lists {
			t.Errorf("%s: %d lists, want %d", name, lists, test.lists)
		}
	}
}

func TestSuspects(t *testing.T) {
	b, key := idleBench(t, []int{1}), Key{"n", 1}
	for _, name := range []string{"a", "b"} {
		b.labeler.suspect(key, object{policy.Machine, types.NamespacedName{Namespace: "n", Name: name}})
	}
	if got := len(b.labeler.suspects[key]); got != 2 {
		t.Errorf("%d suspects, want 2", got)
	}
	if b.labeler.concerns(key, b.labeler.lastSuspicion()) || len(b.labeler.suspects) > 0 {
		t.Errorf("objects that are not cached are still suspects: %v", b.labeler.suspects)
	}
}
