package orphans

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/orphans/decide"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// request has the owner of a machine request a sweep of a namespace.
func (s *sweeping) request(namespace string) {
	s.Edit("machineclasses", namespace, class, func(u *unstructured.Unstructured) {
		annotations := u.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[v1alpha1.AnnotationSweepRequested] = "m"
		u.SetAnnotations(annotations)
	})
}

// isRequested reports whether the MachineClass of a namespace requests a sweep.
func (s *sweeping) isRequested(namespace string) bool {
	return s.Get("machineclasses", namespace, class).GetAnnotations()[v1alpha1.AnnotationSweepRequested] != ""
}

// reconcile sweeps a namespace now, and returns after which time to do so again.
func (s *sweeping) reconcile() (again time.Duration) {
	s.Helper()
	result, err := s.orphans.reconcile(s.Context(), namespace)
	if err != nil {
		s.Error(err)
	}
	return result.RequeueAfter
}

// addSurplus adds a Machine that names the first VM, and VMs that were created for it, too.
func (s *sweeping) addSurplus(name, own string, others ...string) {
	s.Helper()
	s.put("machines", map[string]any{
		"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "metadata": map[string]any{"namespace": namespace, "name": name},
		"spec": map[string]any{"class": map[string]any{"kind": "MachineClass", "name": class}, "providerID": own},
	})
	uid := s.Get("machines", namespace, name).GetUID()
	for _, id := range append([]string{own}, others...) {
		r := driver.Resource{Kind: driver.ResourceVM, ID: id, Namespace: namespace, Machine: name, MachineUID: uid, NodeName: "node-of-" + id}
		s.addResource(r)
		s.suspects[id] = decide.Suspect{Resource: r, Surplus: true}
	}
}

// Also when the record of the sweep is written after the request.
func TestSweepRequestDuringTheSweepStays(t *testing.T) {
	s := newSweeping(t, 10)
	s.add(driver.ResourceVM, namespace, "vm")
	s.request(namespace)
	patches := 0
	s.Fault(func(r apiserver.Request) error {
		if r.Verb == "patch" {
			if patches++; patches == 1 {
				s.Edit("machineclasses", namespace, class, func(u *unstructured.Unstructured) {
					u.SetAnnotations(map[string]string{v1alpha1.AnnotationSweepRequested: "later"})
				})
			}
		}
		return nil
	})
	if again := s.reconcile(); again != s.orphans.spacing() || !s.isRequested(namespace) || patches != 2 {
		t.Errorf("again in %s, want %s; requested still: %t; %d writes, want 2", again, s.orphans.spacing(), s.isRequested(namespace), patches)
	}
	s.clock.Step(s.orphans.spacing())
	if s.reconcile(); s.isRequested(namespace) {
		t.Error("the later request was not served")
	}
}

func TestSweepSurplusVMIsDeletedAsSoonAsItIsOldEnough(t *testing.T) {
	s := newSweeping(t, 10)
	s.addSurplus("m", "own", "surplus")
	s.request(namespace)
	age, again := timeBetween-timeBetween/10, s.reconcile()
	if again < age || again > age+time.Minute || s.isRequested(namespace) {
		t.Fatalf("again in %s, want %s or little more; requested still: %t", again, age, s.isRequested(namespace))
	}
	s.clock.Step(age - time.Second)
	early := s.reconcile() // a usual sweep
	if early < time.Second || early > time.Minute {
		t.Errorf("a second too early, and again in %s", early)
	}
	s.wantDeleted()
	s.clock.Step(early)
	if again := s.reconcile(); again != 0 {
		t.Errorf("again in %s after the deletion", again)
	}
	s.wantDeleted("surplus")
	s.wantReports("surplus")
}

func TestSweepSurplusVMPassesTheGuardsOfAllOrphans(t *testing.T) {
	for name, guard := range map[string]func(s *sweeping){
		"deletions are held": func(s *sweeping) { s.held = true },
		"the limit":          func(s *sweeping) { s.config.Limit = 0; s.lead() },
		"a Node that is Ready": func(s *sweeping) {
			s.put("nodes", map[string]any{
				"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "node-of-surplus"},
				"spec":   map[string]any{"providerID": "surplus"},
				"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}},
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSweeping(t, 10)
			s.addSurplus("m", "own", "surplus")
			guard(s)
			s.request(namespace)
			s.clock.Step(s.reconcile())
			if again := s.reconcile(); again != 0 {
				t.Errorf("again in %s: what is held waits for usual sweeps", again)
			}
			s.wantDeleted()
			if len(s.eventsOf(v1alpha1.EventOrphansHeld)) != 1 {
				t.Errorf("Events %v, want one of what is held", s.events)
			}
		})
	}
}

func TestSweepMachineThatNamesNoneOfItsVMsKeepsThem(t *testing.T) {
	s := newSweeping(t, 10)
	s.addSurplus("m", "own", "surplus")
	s.Edit("machines", namespace, "m", func(u *unstructured.Unstructured) { unstructured.RemoveNestedField(u.Object, "spec", "providerID") })
	s.request(namespace)
	if again := s.reconcile(); again != 0 || s.isRequested(namespace) {
		t.Errorf("again in %s, and requested still: %t", again, s.isRequested(namespace))
	}
	s.sweepTwice()
	s.wantDeleted()
}

// A request stays until its scope was listed, so that the next sweep, of this leader or another
// one, serves it.
func TestSweepRequestEndsWhenItIsServed(t *testing.T) {
	s := newSweeping(t, 10)
	s.request(namespace)
	s.cloud.Fail(fakecloud.Fault{Code: driver.Unavailable}, driver.OpResources)
	if _, err := s.orphans.reconcile(t.Context(), namespace); err == nil || !s.isRequested(namespace) {
		t.Errorf("error %v, and requested still: %t, want an error and the request", err, s.isRequested(namespace))
	}
	s.cloud.Work()
	s.served = func() bool { return false }
	s.reconcile()
	if !s.isRequested(namespace) {
		t.Error("the request was removed in a namespace of another manager")
	}
	s.served = func() bool { return true }
	s.reconcile()
	if s.isRequested(namespace) {
		t.Error("the request was served, and is still there")
	}
	s.putClass("other", "without a sweeper")
	s.putClass("another", providerOfClass)
	s.Remove("secrets", "another", "credentials")
	for name, why := range map[string]string{"other": "whose driver cannot list", "another": "without credentials"} {
		s.request(name)
		if _, err := s.orphans.reconcile(t.Context(), name); err != nil || s.isRequested(name) {
			t.Errorf("error %v; the request of a class %s is still there: %t", err, why, s.isRequested(name))
		}
	}
}

// A sweep at another moment serves requests, too, and the next requested one waits.
func TestOrphansRequestsAreSpaced(t *testing.T) {
	s := newSweeping(t, 10)
	if wait := s.orphans.spaced(namespace, 0); wait != 0 {
		t.Errorf("the first request waits for %s", wait)
	}
	s.reconcile()
	if wait := s.orphans.spaced(namespace, 0); wait != 0 {
		t.Errorf("a sweep without a request delays the next request by %s", wait)
	}
	s.request(namespace)
	s.reconcile()
	s.clock.Step(time.Minute)
	if wait, want := s.orphans.spaced(namespace, 0), s.orphans.spacing()-time.Minute; wait != want {
		t.Errorf("the next request waits for %s, want %s", wait, want)
	}
}

// A cloud that shows another surplus VM in each sweep causes no more sweeps than requests do.
func TestOrphansConfirmingSweepsAreSpaced(t *testing.T) {
	const periods = 20
	s := newSweeping(t, 0)
	begun, sweeps := s.clock.Now(), 0
	usual := begun
	for next := begun; s.clock.Since(begun) < periods*timeBetween; sweeps++ {
		s.addSurplus(fmt.Sprint("m-", sweeps), fmt.Sprint("own-", sweeps), fmt.Sprint("surplus-", sweeps))
		s.clock.Step(max(next.Sub(s.clock.Now()), 0))
		again := s.reconcile()
		if !s.clock.Now().Before(usual) {
			usual = usual.Add(timeBetween)
		}
		if next = usual; again > 0 && s.clock.Now().Add(again).Before(usual) {
			next = s.clock.Now().Add(again)
		}
	}
	if most := periods * (1 + plansInPeriod); sweeps > most {
		t.Errorf("%d sweeps in %d periods, want at most %d", sweeps, periods, most)
	}
}

func TestOrphansPlanFindsNamespacesWithRequests(t *testing.T) {
	s := newSweeping(t, 10)
	s.putClass("other", providerOfClass)
	s.request("other")
	found, err := s.orphans.namespaces(t.Context())
	if requested, has := found[namespace]; err != nil || requested || !has || !found["other"] {
		t.Errorf("found %v, error %v; want both, and a request of one", found, err)
	}
}
