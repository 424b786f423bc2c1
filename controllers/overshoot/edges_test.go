package overshoot

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/overshoot/decide"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// tooMany has the next count freeze the set, and returns how often Machines are listed and the set
// is patched in the minute in which it does. onPatch is called before each patch.
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
		"the set is created again with the same name": {func(c *counting, _ int) error {
			set := c.set()
			c.Remove("machinesets", namespace, "s")
			apiserver.Add(c.Server, &v1alpha1.MachineSet{
				ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: namespace, Labels: set.Labels}, Spec: set.Spec,
			})
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

// The count of a namespace that is not served any more is forgotten: when it is served again its
// sets may have other sizes.
func TestCountOfANamespaceThatIsNotListedAnyMoreIsForgotten(t *testing.T) {
	onCounting(t, 2, func(c *counting) {
		c.lead()
		c.counts.mu.Lock()
		c.counts.counts["left"] = decide.Count{}
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
