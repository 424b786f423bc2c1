package machine

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2/ktesting"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// runsSince creates a machine as Machine Controller Manager leaves it: it runs, on the Node "m".
func (b *bench) runsSince(namespace, name string) *v1alpha1.Machine {
	b.Helper()
	return b.runsOn(namespace, name, "test:///mcm-1")
}

// runsOn creates such a machine with a provider ID.
func (b *bench) runsOn(namespace, name, providerID string) *v1alpha1.Machine {
	b.Helper()
	m := &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Finalizers: []string{v1alpha1.FinalizerName}, Labels: map[string]string{v1alpha1.LabelNode: "m"},
		},
		Spec: v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: "c"}, ProviderID: providerID},
		Status: v1alpha1.MachineStatus{
			CurrentStatus: v1alpha1.CurrentStatus{Phase: v1alpha1.MachineRunning},
			LastOperation: v1alpha1.LastOperation{Type: v1alpha1.MachineOperationHealthCheck, State: v1alpha1.MachineStateSuccessful},
		},
	}
	created := apiserver.Add(b.server, m)
	time.Sleep(2 * time.Second)
	return created
}

// ofMCM is the Node "m" as Machine Controller Manager leaves it.
func (b *bench) ofMCM(machine string) {
	b.Helper()
	b.setNode(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "m", UID: "node", Labels: map[string]string{v1alpha1.LabelMachineName: machine}, Finalizers: []string{v1alpha1.NodeFinalizerName},
		},
		Spec:   corev1.NodeSpec{ProviderID: "test:///mcm-1"},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	})
}

// boundTo returns the Machine that the Node "m" is bound to, and whether it is cordoned or marked.
func (b *bench) boundTo() (ref v1alpha1.MachineRef, isTouched bool) {
	b.Helper()
	node := b.node()
	ref, _ = v1alpha1.MachineOf(node)
	return ref, node.Spec.Unschedulable || len(node.Status.Conditions) > 1
}

func TestANodeOfMachineControllerManagerIsTheOldestMachines(t *testing.T) {
	for name, forger := range map[string]string{
		"no other machine": "", "a forger of the same name": "m", "a forger of another name": "other",
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				victim := b.runsSince("n", "m")
				if forger != "" {
					b.runsSince("f", forger)
				}
				calls := len(b.cloud.Calls(""))
				b.ofMCM("m")
				b.pass(time.Minute)
				if forger != "" {
					b.server.Delete("machines", "f", forger)
					b.pass(time.Hour)
				}
				if ref, isTouched := b.boundTo(); ref != v1alpha1.RefOf(victim) || isTouched {
					t.Errorf("the Node is bound to %s, touched: %t; want %s, and not touched", ref, isTouched, v1alpha1.RefOf(victim))
				}
				if asked := len(b.cloud.Calls("")) - calls; forger == "" && asked > 0 {
					t.Errorf("the cloud got %d requests for a Node that is taken over", asked)
				}
			})
		})
	}
}

// Labels and provider ID of an old machine can be edited, and its name cannot.
func TestAnOlderMachineKeepsANodeOnlyFromItsNamesakes(t *testing.T) {
	for name, tc := range map[string]struct {
		older, providerID string
		bound             bool // the Node, to a machine of the victim's namespace and name that is gone
		isKept            bool
	}{
		"of another name":                                      {older: "other", providerID: "test:///mcm-1"},
		"of the same name, with another VM":                    {older: "m", providerID: "test:///mcm-2"},
		"of the same name, with the same VM":                   {older: "m", providerID: "test:///mcm-1", isKept: true},
		"of the same name, and the Node was bound to a victim": {older: "m", providerID: "test:///mcm-1", bound: true},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.runsSince("a", tc.older)
				b.server.Merge("machines", "a", tc.older, `{"spec":{"providerID":"`+tc.providerID+`"}}`)
				victim := b.runsSince("n", "m")
				b.ofMCM("m")
				if tc.bound {
					b.annotateNode(v1alpha1.AnnotationMachine, "n/m/before")
				}
				b.pass(time.Minute)
				ref, _ := b.boundTo()
				if isKept := ref != v1alpha1.RefOf(victim); isKept != tc.isKept {
					t.Errorf("the Node is bound to %s, the victim is %s", ref, v1alpha1.RefOf(victim))
				}
			})
		})
	}
}

// The victim is younger, or is not there: the forger gets nothing that does not have its name.
func TestNodeOfAnotherMachineIsNotChanged(t *testing.T) {
	onBench(t, func(b *bench) {
		forger := b.runsSince("n", "m")
		b.ofMCM("victim")
		b.pass(time.Minute)
		b.server.Delete("machines", "n", forger.Name)
		b.pass(time.Hour)
		if ref, isTouched := b.boundTo(); ref.Name != "" || isTouched {
			t.Errorf("the Node is bound to %s, touched: %t", ref, isTouched)
		}
		if b.get() != nil {
			t.Errorf("the forger's machine still exists: %s", b.operation())
		}
	})
}

// A VM of Machine Controller Manager has no UID. It is deleted with its machine, and with no
// younger one of the same name.
func TestAVMOfMachineControllerManagerIsDeletedWithItsMachine(t *testing.T) {
	for name, older := range map[string]bool{"no other machine": false, "an older machine of that name has it": true} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				if older {
					b.runsSince("a", "m")
				}
				b.cloud.Add(fakecloud.Resource{
					Resource: driver.Resource{Kind: driver.ResourceVM, ID: "test:///mcm-1", Machine: "m", NodeName: "m"}, Ready: true,
				})
				b.runsSince("n", "m")
				b.server.Delete("machines", "n", "m")
				b.pass(time.Hour)
				if b.get() != nil {
					t.Errorf("the machine still exists: %s", b.operation())
				}
				if left := len(b.cloud.Live()); (left > 0) != older {
					t.Errorf("%d VMs are left, after %d calls", left, len(b.cloud.Calls(driver.OpDelete)))
				}
				row := v1alpha1.EventReasons()[0]
				for _, r := range v1alpha1.EventReasons() {
					if r.Reason == v1alpha1.EventNotOwned {
						row = r
					}
				}
				if events := b.reported.Count(row); (events > 0) != older {
					t.Errorf("%d Events NotOwned", events)
				}
			})
		})
	}
}

// The list is of all namespaces, and each change of a Node by its kubelet starts a pass.
func TestAKubeletThatTakesItsBindingOffCausesFewLists(t *testing.T) {
	onBench(t, func(b *bench) {
		victim := b.runsSince("n", "m")
		b.ofMCM("m")
		b.pass(time.Minute)
		listed := func() int { return b.server.Count("list machines") }
		before := listed()
		for i := range 240 {
			b.changeNode(func(node *corev1.Node) { delete(node.Annotations, v1alpha1.AnnotationMachine) })
			b.pass(time.Second / 4)
			if ref, _ := b.boundTo(); i < 3 && ref != v1alpha1.RefOf(victim) {
				t.Errorf("the Node is bound to %s after its binding was removed %d times, want %s", ref, i+1, v1alpha1.RefOf(victim))
			}
		}
		if n := listed() - before; n < 1 || n > 3 {
			t.Errorf("machines were listed %d times within a minute, want at most 3", n)
		}
		b.pass(nodeWriteWindow)
		for _, uid := range []types.UID{"another", "a third"} {
			before = listed()
			node := b.node()
			node.UID, node.Annotations = uid, nil
			b.setNode(node)
			b.pass(time.Second)
			if n := listed() - before; n != 1 {
				t.Errorf("machines were listed %d times for another Node of that name, want once", n)
			}
		}
	})
}

// older creates machines that are older than the victim and name its VM, and that this process does
// not have: they are in slots of others.
func (b *bench) older(namespaces ...string) {
	b.Helper()
	for _, namespace := range namespaces {
		m := b.runsSince(namespace, "m")
		b.process.cfg.View.Machines.Remove(objectcache.Key(m), "")
	}
}

// A namesake that is gone since it was listed has no claim. One that is there and cannot be read
// may have one.
func TestANamesakeThatCannotBeReadMayHaveAClaim(t *testing.T) {
	notFound := apierrors.NewNotFound(v1alpha1.Resource("machines"), "m")
	for name, tc := range map[string]struct {
		answer      error // to a request for the namesake
		undecodable bool
		bound       bool
		repeated    bool // the request
	}{
		"it is read":           {},
		"it is gone":           {answer: notFound, bound: true},
		"it cannot be decoded": {undecodable: true},
		"there is no answer":   {answer: apierrors.NewServiceUnavailable("away"), repeated: true},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.older("a")
				if tc.undecodable {
					b.server.SetUndecodable("machines", "a", "m", true)
				}
				var requests atomic.Int32
				b.server.Fault(func(r apiserver.Request) error {
					if r.Verb == "get" && r.Resource == "machines" {
						requests.Add(1)
						return tc.answer
					}
					return nil
				})
				victim := b.runsSince("n", "m")
				b.ofMCM("m")
				b.pass(time.Minute)
				if ref, _ := b.boundTo(); (ref == v1alpha1.RefOf(victim)) != tc.bound {
					t.Errorf("the Node is bound to %s, want the machine: %t", ref, tc.bound)
				}
				if n := requests.Load(); (n > 1) != tc.repeated || n == 0 {
					t.Errorf("the namesake was requested %d times, want more than once: %t", n, tc.repeated)
				}
			})
		})
	}
}

// Other claimants are logged, by the names of some of them.
func TestOtherClaimantsAreLogged(t *testing.T) {
	for _, namespaces := range [][]string{nil, {"a"}, {"a", "b", "c", "d"}} {
		onBench(t, func(b *bench) {
			b.older(namespaces...)
			b.end()
			victim := b.runsSince("n", "m")
			gate := newLoggedGate(t)
			ctx, _, _ := gate.Admit(b.Context(), objectcache.Key(victim))
			p := &pass{world: lifecycle.World{Machine: victim}}
			b.must(b.process.others.findOfVM(ctx, p))
			if want := (lifecycle.OtherClaims{Read: true, Found: len(namespaces) > 0}); p.world.VMClaims != want {
				t.Errorf("claimants in %v: found %+v, want %+v", namespaces, p.world.VMClaims, want)
			}
			underlier, _ := gate.logger.GetSink().(ktesting.Underlier)
			log := underlier.GetBuffer().String()
			if len(namespaces) == 0 {
				if log != "" {
					t.Errorf("the log without claimants is %q", log)
				}
				return
			}
			named := 0
			for _, namespace := range namespaces {
				if strings.Contains(log, namespace+"/m") {
					named++
				}
			}
			if !strings.Contains(log, fmt.Sprint("number=", len(namespaces))) || named != min(len(namespaces), claimantsLogged) {
				t.Errorf("the log %q names %d of %d claimants, want their number and at most %d names", log, named, len(namespaces), claimantsLogged)
			}
		})
	}
}
