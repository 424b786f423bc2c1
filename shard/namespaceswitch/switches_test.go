package namespaceswitch

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/bubbles"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/namespaceswitch/policy"
)

func TestMain(m *testing.M) { bubbles.Main(m) }

// bench is Switches that run, with an API server and a runner whose passes last until they are
// interrupted.
type bench struct {
	server   *apiserver.Server
	switches *Switches
	runner   *runner.Runner[string]

	begun, interrupted int
	notSelected        bool
}

func newBench(t *testing.T) *bench {
	b := &bench{server: apiserver.Recording()}
	core := b.server.Core()
	var err error
	b.switches, err = New(Config{
		Deployments: objectcache.From(core.AppsV1().Deployments("")), Pods: objectcache.From(core.CoreV1().Pods("")), Client: core.CoreV1(),
		SlotOf: func(string) int { return 3 }, Gate: runner.Open[string]{}, Holds: func(int) bool { return false },
		Selected: func(string) bool { return !b.notSelected },
		Service:  func(string) policy.Service { return policy.Service{} }, Clock: clock.RealClock{},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.runner, err = runner.New(runner.Config[string]{
		Name: "test", Gate: Guard(b.switches, runner.Gate[string](runner.Open[string]{}), func(key string) string { return key }),
		Reconcile: func(ctx context.Context, _ string) (runner.Result, error) {
			b.begun++
			<-ctx.Done()
			if errors.Is(context.Cause(ctx), errSwitchedOff) {
				b.interrupted++
			}
			return runner.Result{}, ctx.Err()
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	running.Go(func() { b.switches.Run(ctx) })
	running.Go(func() { b.runner.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	synctest.Wait() // until the switches are listed
	return b
}

func (b *bench) turn(replicas int32) {
	apiserver.Add(b.server, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: policy.Deployment}, Spec: appsv1.DeploymentSpec{Replicas: &replicas},
	})
	synctest.Wait()
}

func TestPassesAreInterruptedAndResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.runner.Enqueue("n")
		synctest.Wait()
		if b.begun > 0 {
			t.Error("a pass began without the Deployment")
		}
		for round, step := range []struct {
			replicas           int32
			begun, interrupted int
		}{{1, 1, 0}, {0, 1, 1}, {2, 2, 1}, {1, 2, 1}, {0, 2, 2}} {
			if b.turn(step.replicas); b.begun != step.begun || b.interrupted != step.interrupted {
				t.Errorf("step %d: %d passes have begun and %d were interrupted, want %d and %d",
					round, b.begun, b.interrupted, step.begun, step.interrupted)
			}
		}
	})
}

// unknown is the gate of a replica that knows no object.
type unknown struct{ runner.Open[string] }

func (unknown) Group(string) int { return -1 }

func TestObjectsThatAreUnknownDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		gate, _ := Guard(b.switches, runner.Gate[string](unknown{}), func(key string) string { return key }).(*Gate[string])
		gate.Notify(func(string) {})
		if _, _, admitted := gate.Admit(t.Context(), "n"); admitted || len(gate.waiting) > 0 {
			t.Errorf("admitted %t, and %v wait", admitted, gate.waiting)
		}
	})
}

// addPod adds a pod of the switch.
func (b *bench) addPod() {
	apiserver.Add(b.server, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", Labels: map[string]string{"role": policy.Deployment}},
		Spec:       corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: v1alpha1.SchedulingGateNever}}},
	})
}

func TestPodsOfAnotherFleetAreNotReportedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.notSelected = true
		b.addPod()
		b.turn(1)
		if err := b.switches.ReportUnowned(t.Context(), []int{3}); err != nil {
			t.Fatal(err)
		}
		if is := apiserver.Read[corev1.Pod](b.server, "pods", "n", "p").Status; is.Phase != "" || len(is.Conditions) > 0 {
			t.Errorf("got the status %+v, want none", is)
		}
	})
}

// A fleet reports on a pod that another one has left, and on it alone.
func TestPodsThatNoFleetServesAreNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.addPod()
		b.turn(1)
		ready := func() corev1.PodCondition {
			synctest.Wait()
			for _, c := range apiserver.Read[corev1.Pod](b.server, "pods", "n", "p").Status.Conditions {
				if c.Type == corev1.PodReady {
					return c
				}
			}
			return corev1.PodCondition{}
		}
		if is := ready(); is.Reason != "FleetServes" {
			t.Fatalf("got %+v, want one that is served", is)
		}
		b.notSelected = true
		time.Sleep(time.Minute)
		if is := ready(); is.Status != corev1.ConditionTrue {
			t.Errorf("got %+v before it is known that no fleet serves it", is)
		}
		b.switches.cfg.Service = func(string) policy.Service { return policy.Service{Reason: "NotSelected", Message: "No fleet"} }
		time.Sleep(time.Minute)
		if is := ready(); is.Status != corev1.ConditionFalse || is.Reason != "NotSelected" {
			t.Errorf("got %+v, want that no fleet serves it", is)
		}
	})
}

func TestPodsOfSlotsWithoutAHolderAreNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.addPod()
		b.turn(1)
		for _, step := range []struct {
			slot int
			want string
		}{{4, "FleetServes"}, {3, reasonUnowned}} {
			b.switches.cfg.Service = func(string) policy.Service { return policy.Service{Pending: true} } // there is no holder to report
			if err := b.switches.ReportUnowned(t.Context(), []int{step.slot}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			conditions := apiserver.Read[corev1.Pod](b.server, "pods", "n", "p").Status.Conditions
			if len(conditions) != 2 || conditions[0].Type != corev1.PodReady || conditions[0].Reason != step.want {
				t.Errorf("slot %d has no holder: conditions %v, want Ready by %s", step.slot, conditions, step.want)
			}
		}
	})
}
