package safety

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/safety/overshoot"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pages"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// tooMany has the next count freeze the set, and returns how often Machines are listed and the set is patched in the minute in which it does.
// onPatch is called before each patch.
func (c *counting) tooMany(onPatch func() error) (lists, patches int) {
	c.create(4)
	c.lead()
	c.create(1)
	c.Forget()
	c.Fault(func(r apiserver.Request) error {
		if r.Verb == "patch" {
			return onPatch()
		}
		return nil
	})
	time.Sleep(time.Minute)
	synctest.Wait()
	return c.Count("list machines"), c.Count("patch *")
}

// What is read again, and how often, when the write of a freeze fails.
func TestFreezeThatCannotBeWritten(t *testing.T) {
	touch := func(c *counting) {
		c.edit(func(set *v1alpha1.MachineSet) {
			metav1.SetMetaDataAnnotation(&set.ObjectMeta, "writes", set.ResourceVersion)
		})
	}
	for name, tc := range map[string]struct {
		onPatch        func(c *counting, patch int) error
		lists, patches int
		gone           bool
	}{
		"the set is deleted meanwhile": {func(c *counting, _ int) error {
			c.Remove("machinesets", namespace, "s")
			return nil
		}, 1, 1, true},
		"the request fails: it is counted again": {func(_ *counting, patch int) error {
			if patch == 1 {
				return errors.New("the connection was closed")
			}
			return nil
		}, 2, 2, false},
		"the set changes again and again: it is counted again": {func(c *counting, patch int) error {
			if patch <= freezeAttempts {
				touch(c)
			}
			return nil
		}, 2, freezeAttempts + 1, false},
		"the set is made anew with the same name": {func(c *counting, _ int) error {
			set := c.set()
			c.Remove("machinesets", namespace, "s")
			apiserver.Add(c.Server, &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: namespace, Labels: set.Labels}, Spec: set.Spec})
			return nil
		}, 1, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			onCounting(t, 2, func(c *counting) {
				patch := 0
				lists, patches := c.tooMany(func() error {
					patch++
					return tc.onPatch(c, patch)
				})
				if lists != tc.lists || patches != tc.patches {
					c.Errorf("%d lists of Machines and %d patches, want %d and %d", lists, patches, tc.lists, tc.patches)
				}
				if gone := c.Get("machinesets", namespace, "s") == nil; gone != tc.gone {
					c.Errorf("the set is gone: %t", gone)
				}
			})
		})
	}
}

// The set is deleted between a conflict and the read after it.
func TestFreezeOfASetThatIsDeletedAfterAConflict(t *testing.T) {
	onCounting(t, 2, func(c *counting) {
		lists, patches := c.tooMany(func() error {
			c.edit(func(set *v1alpha1.MachineSet) { metav1.SetMetaDataAnnotation(&set.ObjectMeta, "writes", "1") })
			c.Fault(func(r apiserver.Request) error {
				if r.What() == "get machinesets" {
					c.Remove("machinesets", namespace, "s")
				}
				return nil
			})
			return nil
		})
		if lists != 1 || patches != 1 {
			c.Errorf("%d lists of Machines and %d patches, want 1 and 1", lists, patches)
		}
	})
}

// The count of a namespace that is not served any more is forgotten: when it is served again its sets may have other sizes.
func TestCountOfANamespaceThatIsNotListedAnyMoreIsForgotten(t *testing.T) {
	onCounting(t, 2, func(c *counting) {
		c.lead()
		c.counts.mu.Lock()
		c.counts.counts["left"] = overshoot.Count{}
		c.counts.mu.Unlock()
		time.Sleep(time.Minute)
		c.counts.mu.Lock()
		defer c.counts.mu.Unlock()
		_, left := c.counts.counts["left"]
		if _, kept := c.counts.counts[namespace]; left || !kept {
			c.Errorf("counts of the namespace that left: %t, of the one that stays: %t", left, kept)
		}
	})
}

// The timeout is reached when a search finds a Node without a machine exactly so much later.
func TestNodeIsAnnotatedAtTheTimeout(t *testing.T) {
	onSearching(t, func(s *searching) {
		s.search.cfg.Timeout = 20 * time.Minute
		s.join("n", nil)
		s.search.Begin()
		time.Sleep(20*time.Minute + time.Second)
		s.expect("n", true)
	})
}

// A Node that changes or is deleted while it is annotated is no failure: it is left to the next search.
func TestNodeThatChangesMeanwhileIsNotAnError(t *testing.T) {
	for name, change := range map[string]func(s *searching){
		"it is deleted": func(s *searching) { s.target.Remove("nodes", "", "n") },
		"it changes": func(s *searching) {
			s.target.Edit("nodes", "", "n", func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"changed": "now"}) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			onSearching(t, func(s *searching) {
				s.join("n", nil)
				s.search.Begin()
				time.Sleep(21 * time.Minute)
				s.target.Forget()
				s.target.Fault(func(r apiserver.Request) error {
					if r.Verb == "patch" {
						change(s)
					}
					return nil
				})
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if log := s.target.Log(); !slices.Equal(log, []string{"list nodes", "patch nodes"}) {
					s.Errorf("requests %q, want a list and a patch", log)
				}
			})
		})
	}
}

// A search that does not read all Nodes changes nothing of what is known of them.
func TestNodesOfASearchThatFails(t *testing.T) {
	onSearching(t, func(s *searching) {
		for i := range pages.Size + 1 {
			s.join(fmt.Sprintf("n-%04d", i), nil)
		}
		s.search.Begin()
		time.Sleep(time.Minute)
		s.target.Fault(func(r apiserver.Request) error {
			if r.URL.Query().Get("continue") != "" {
				return errors.New("the connection was closed")
			}
			return nil
		})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := len(s.search.since); got != pages.Size+1 {
			s.Errorf("%d Nodes are known, want those of the complete search", got)
		}
	})
}

// A Node that cannot be annotated delays no other one.
func TestNodeThatCannotBeAnnotated(t *testing.T) {
	onSearching(t, func(s *searching) {
		for _, name := range []string{"a", "b", "c"} {
			s.join(name, nil)
		}
		s.target.Fault(func(r apiserver.Request) error {
			if r.Verb == "patch" && r.Name == "b" {
				return errors.New("the connection was closed")
			}
			return nil
		})
		s.search.Begin()
		time.Sleep(31 * time.Minute)
		s.expect("a", true)
		s.expect("b", false)
		s.expect("c", true)
		s.target.Fault(nil)
		time.Sleep(10 * time.Minute)
		s.expect("b", true)
	})
}
