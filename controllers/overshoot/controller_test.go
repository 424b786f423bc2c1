package overshoot

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/overshoot/decide"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/ownerref"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apitest"
)

const namespace = "n"

// counting is a leader that counts each minute, and a namespace with one MachineSet.
type counting struct {
	*testing.T
	*apiserver.Server

	gate     apitest.LeaderGate
	served   atomic.Bool
	reported apitest.EventLog
	counts   *Controller
	ordinal  int64
}

func onCounting(t *testing.T, replicas int32, test func(c *counting)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &counting{T: t, Server: apiserver.Recording()}
		c.served.Store(true)
		c.gate.Leads.Store(true)
		set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: namespace, Labels: map[string]string{"team": "a"}}}
		set.Spec.Replicas = replicas
		apiserver.Add(c.Server, set)
		var err error
		c.counts, err = New(Config{
			Machines: c.Machines(), Metadata: c.Metadata(), Events: &c.reported,
			Namespaces: func() []string { return []string{namespace, "other"} },
			Serves:     func(n string) bool { return c.served.Load() && n == namespace },
			Most:       func(d *v1alpha1.MachineDeployment) int { return int(d.Spec.Replicas) }, Limits: decide.Limits{Up: 2, Down: 1},
			Period: time.Minute, Gate: &c.gate, Clock: clock.RealClock{},
		})
		if err != nil {
			t.Fatal(err)
		}
		go c.counts.Run(t.Context())
		test(c)
	})
}

func (c *counting) set() *v1alpha1.MachineSet {
	return apiserver.Read[v1alpha1.MachineSet](c.Server, "machinesets", namespace, "s")
}

// create creates machines, as the controller of the set does.
func (c *counting) create(count int) {
	c.Helper()
	set := c.set()
	for range count {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
			Name: machinefacts.Name(set.Name, set.UID, c.ordinal), Namespace: namespace,
			Annotations:     map[string]string{v1alpha1.AnnotationOrdinal: fmt.Sprint(c.ordinal)},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, v1alpha1.SchemeGroupVersion.WithKind("MachineSet"))},
		}}
		c.ordinal++
		apiserver.Add(c.Server, m)
	}
}

// lead begins the leadership and waits for the first count.
func (c *counting) lead() {
	c.counts.Begin()
	time.Sleep(time.Second)
}

// expect waits for another count, and fails unless the set is frozen after it, or not.
func (c *counting) expect(frozen bool, when string) {
	c.Helper()
	time.Sleep(time.Minute)
	set := c.set()
	_, noted := set.Annotations[v1alpha1.AnnotationOvershooting]
	if machinefacts.IsFrozen(set) != frozen || noted != frozen || set.Labels["team"] != "a" {
		c.Errorf("%s: labels %v, annotations %v, want frozen: %t", when, set.Labels, set.Annotations, frozen)
	}
}

func TestSetThatCreatesBeyondItsSizeIsFrozen(t *testing.T) {
	onCounting(t, 2, func(c *counting) {
		c.create(2)
		c.lead()
		c.create(3)
		c.expect(false, "the first count that shows too many")
		c.create(1)
		c.expect(true, "the second one")
		c.create(1)
		c.expect(true, "too many machines remain")
		for _, m := range c.List("machines")[:4] {
			c.Delete("machines", namespace, m.GetName())
		}
		c.expect(false, "the excess is deleted")
		if got, want := c.reported.List(), []string{"Warning FrozeMachineSet", "Normal UnfrozeMachineSet"}; !slices.Equal(got, want) {
			c.Errorf("Events %v, want %v", got, want)
		}
	})
}

// TestSetWhoseMachinesDriftIsFrozen: another client removes a label of a machine every 10 min, and
// the set releases the machine and creates another one.
func TestSetWhoseMachinesDriftIsFrozen(t *testing.T) {
	onCounting(t, 3, func(c *counting) {
		c.create(3)
		c.lead()
		for range 20 {
			if machinefacts.IsFrozen(c.set()) {
				break
			}
			time.Sleep(10 * time.Minute)
			c.release(machinefacts.Name("s", c.set().UID, c.ordinal-1))
			c.create(1)
			time.Sleep(time.Minute)
		}
		if n := len(c.List("machines")); n != 6 {
			t.Errorf("frozen: %t, with %d machines for 3 replicas, want 6", machinefacts.IsFrozen(c.set()), n)
		}
		c.expect(true, "three that it has released remain")
		c.Delete("machines", namespace, machinefacts.Name("s", c.set().UID, 2))
		c.expect(false, "two remain")
	})
}

// release releases a machine, as the controller of the set does.
func (c *counting) release(name string) {
	uid := c.set().UID
	apiserver.Change(c.Server, "machines", namespace, name, func(m *v1alpha1.Machine) { ownerref.Release(m, uid) })
}

func TestSetThatIsScaledDownIsNotFrozen(t *testing.T) {
	onCounting(t, 20, func(c *counting) {
		c.create(20)
		c.lead()
		c.edit(resize(2))
		for range 3 {
			c.expect(false, "its machines are not deleted yet")
		}
	})
}

func resize(replicas int32) func(*v1alpha1.MachineSet) {
	return func(set *v1alpha1.MachineSet) { set.Spec.Replicas = replicas }
}

// edit changes the set, as another client does.
func (c *counting) edit(change func(*v1alpha1.MachineSet)) {
	c.Helper()
	set := c.set()
	change(set)
	if _, err := c.Machines().MachineSets(namespace).Update(c.Context(), set, metav1.UpdateOptions{}); err != nil {
		c.Error(err)
	}
}

// TestMachinesAreCountedInPages: of more machines than a page has, all are counted.
func TestMachinesAreCountedInPages(t *testing.T) {
	onCounting(t, decode.PageSize, func(c *counting) {
		c.create(decode.PageSize + 2)
		c.lead()
		c.create(1)
		c.expect(true, "the second count")
	})
}

// TestNamespacesAreCountedTogether: each may have few machines, and there may be thousands. Those
// that are not served are not counted.
func TestNamespacesAreCountedTogether(t *testing.T) {
	onCounting(t, 2, func(c *counting) {
		apiserver.Add(c.Server, &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "other"}})
		c.lead()
		c.Forget()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got, want := c.Log(), []string{"list machinedeployments", "list machinesets", "list machines"}; !slices.Equal(got, want) {
			c.Errorf("a count sends %q, want %q", got, want)
		}
		c.counts.mu.Lock()
		defer c.counts.mu.Unlock()
		if _, counted := c.counts.counts["other"]; counted || len(c.counts.counts) != 1 {
			c.Errorf("%d namespaces were counted, that which is not served: %t", len(c.counts.counts), counted)
		}
	})
}

// TestPartialListDecidesNothing: the second page of the machines fails once. The next attempt is
// compared with the last complete count.
func TestPartialListDecidesNothing(t *testing.T) {
	onCounting(t, decode.PageSize, func(c *counting) {
		c.create(decode.PageSize + 2)
		c.lead()
		c.create(1)
		var fails atomic.Bool
		fails.Store(true)
		c.Fault(func(r apiserver.Request) error {
			if r.URL.Query().Get("continue") != "" && fails.Load() {
				return errors.New("the connection was closed")
			}
			return nil
		})
		c.expect(false, "the list is not complete")
		fails.Store(false)
		c.expect(true, "the list is complete")
	})
}

func TestOnlyTheLeaderCountsAndOnlyServedNamespaces(t *testing.T) {
	for name, change := range map[string]func(c *counting){
		"does not lead":             func(c *counting) { c.gate.Leads.Store(false) },
		"another manager serves it": func(c *counting) { c.served.Store(false) },
	} {
		t.Run(name, func(t *testing.T) {
			onCounting(t, 2, func(c *counting) {
				c.create(4)
				c.lead()
				time.Sleep(30 * time.Second)
				change(c)
				synctest.Wait()
				c.create(1)
				requests := len(c.Requests())
				time.Sleep(45 * time.Second) // another count of the leadership before
				if created := len(c.Requests()) - requests; created > 0 {
					c.Errorf("%d requests, want none", created)
				}
				if machinefacts.IsFrozen(c.set()) {
					c.Error("it was frozen")
				}
			})
		})
	}
}

// TestFailedFreezeIsTriedAgain: although no machine is created after the failure.
func TestFailedFreezeIsTriedAgain(t *testing.T) {
	onCounting(t, 2, func(c *counting) {
		c.create(4)
		c.lead()
		c.create(1)
		fails := true
		c.Fault(func(r apiserver.Request) error {
			if r.Verb == "patch" && fails {
				fails = false
				return errors.New("the connection was closed")
			}
			return nil
		})
		c.expect(true, "after the failure")
	})
}

// TestNewLeadershipHasNoCount: while another session led, the set may have been resized and resized
// again.
func TestNewLeadershipHasNoCount(t *testing.T) {
	onCounting(t, 2, func(c *counting) {
		c.create(4)
		c.lead()
		c.create(1)
		c.lead()
		if machinefacts.IsFrozen(c.set()) {
			c.Error("it was frozen by the first count of a leadership")
		}
	})
}

// TestSetThatChangesWhileItIsFrozen: its controller writes it all the time while it creates
// machines. Only another size matters.
func TestSetThatChangesWhileItIsFrozen(t *testing.T) {
	for _, tc := range []struct {
		name   string
		times  int
		change func(set *v1alpha1.MachineSet)
		frozen bool
	}{
		{"its intents are written", 2, func(set *v1alpha1.MachineSet) {
			metav1.SetMetaDataAnnotation(&set.ObjectMeta, "writes", set.ResourceVersion)
		}, true},
		{"its replicas are raised", 1, resize(5), false},
		{"a user freezes it", 1, func(set *v1alpha1.MachineSet) { set.Labels[v1alpha1.LabelFreeze] = "True" }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onCounting(t, 2, func(c *counting) {
				c.create(4)
				c.lead()
				c.create(1)
				left := tc.times
				c.Forget()
				c.Fault(func(r apiserver.Request) error {
					if r.Verb == "patch" && left > 0 {
						left--
						c.edit(tc.change)
					}
					return nil
				})
				time.Sleep(time.Minute)
				if _, noted := c.set().Annotations[v1alpha1.AnnotationOvershooting]; noted != tc.frozen || left != 0 || c.Count("list machines") != 1 {
					c.Errorf("frozen by the fleet: %t, want %t; machines were listed %d times, want once", noted, tc.frozen, c.Count("list machines"))
				}
			})
		})
	}
}
