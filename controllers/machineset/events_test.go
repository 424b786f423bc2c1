package machineset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apitest"
)

// manyTimes is how often an action is repeated that must be reported once.
const manyTimes = 100

// bench is a whole controller with an API server in memory, in a bubble of synctest, where time
// advances when no goroutine can continue.
type bench struct {
	*testing.T

	server     *apiserver.Server
	reported   *apitest.EventLog
	controller *Controller
	end        func() // of the process
	class      checks // of its MachineClass
	target     struct {
		problem string
		pending bool
	}
}

// configOf returns a Config of which only required fields are set.
func configOf(server *apiserver.Server, view *objectcache.View, recorder events.EventRecorder) Config {
	return Config{
		Machines: server.Machines(), Metadata: server.Metadata(), View: view, Events: recorder, Held: apitest.NotHeld,
		Deletions: deletion.NewRecorder(clock.RealClock{}, nil, nil), Clock: clock.RealClock{},
	}
}

func onBench(t *testing.T, test func(b *bench), settings ...func(*Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, server: apiserver.Recording(), reported: &apitest.EventLog{}}
		view := objectcache.NewView()
		cfg := configOf(b.server, view, b.reported)
		cfg.ClassProblem = b.class.of
		cfg.TargetProblem = func(string) (string, bool) { return b.target.problem, b.target.pending }
		for _, set := range settings {
			set(&cfg)
		}
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		b.controller = c
		b.server.ShowIn(view)
		ctx, end := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{})) // what fails here is meant to
		go c.Run(ctx)
		defer end()
		b.end = end
		test(b)
	})
}

func (b *bench) create(replicas int32, changes ...func(*v1alpha1.MachineSet)) {
	b.Helper()
	b.add(replicas, changes...)
	b.pass(time.Minute)
}

func (b *bench) add(replicas int32, changes ...func(*v1alpha1.MachineSet)) {
	b.Helper()
	labels := map[string]string{v1alpha1.LabelName: "set"}
	set := &v1alpha1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "set", Labels: map[string]string{v1alpha1.LabelSlot: "7"}},
		Spec: v1alpha1.MachineSetSpec{
			Replicas: replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1alpha1.MachineTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: "c"}},
			},
		},
	}
	for _, change := range changes {
		change(set)
	}
	apiserver.Add(b.server, set)
}

func (b *bench) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (b *bench) patch(format string, args ...any) {
	b.Helper()
	b.server.Merge("machinesets", "n", "set", fmt.Sprintf(format, args...))
}

func (b *bench) set() *v1alpha1.MachineSet {
	b.Helper()
	set := apiserver.Read[v1alpha1.MachineSet](b.server, "machinesets", "n", "set")
	if set == nil {
		b.Fatal("the set was deleted")
	}
	return set
}

// machines are all there are, by name.
func (b *bench) machines() []*v1alpha1.Machine {
	return apiserver.ReadAll[v1alpha1.Machine](b.server, "machines")
}

func (b *bench) patchMachine(name, patch string, subresource ...string) {
	b.Helper()
	b.server.Merge("machines", "n", name, patch, subresource...)
}

// touches enqueues the set manyTimes.
func (b *bench) touches() {
	b.Helper()
	for i := range manyTimes {
		b.patch(`{"metadata":{"annotations":{"touched":"%d"}}}`, i)
		b.pass(time.Minute)
	}
}

// refuses has the server refuse what is done to machines, until it was tried manyTimes.
func (b *bench) refuses(verb string, do func()) {
	b.Helper()
	b.server.Refuse(verb+" machines", errors.New("not now"))
	do()
	b.pass(manyTimes * 2 * time.Minute)
	if tried := b.server.Count(verb + " machines"); tried < manyTimes {
		b.Errorf("tried %d times, want %d", tried, manyTimes)
	}
}

// plays lead to each Event of a MachineSet, and then repeat what led to it, manyTimes.
var plays = map[string]func(b *bench){
	v1alpha1.EventSuccessfulCreate: func(b *bench) {
		b.create(3)
		b.touches()
	},
	v1alpha1.EventSuccessfulDelete: func(b *bench) {
		b.create(3)
		b.patch(`{"spec":{"replicas":1}}`)
		b.touches()
	},
	v1alpha1.EventReleased: func(b *bench) {
		b.create(3)
		b.patchMachine(b.machines()[0].Name, fmt.Sprintf(`{"metadata":{"labels":{%q:"drifted"}}}`, v1alpha1.LabelName))
		b.touches()
	},
	v1alpha1.ReasonMachinesFailEarly: func(b *bench) {
		b.create(2)
		for range 20 * 60 {
			b.fails()
			b.pass(time.Second)
		}
	},
	v1alpha1.ReasonFailedCreate: func(b *bench) {
		b.refuses("create", func() { b.create(3) })
	},
	v1alpha1.ReasonFailedDelete: func(b *bench) {
		b.create(3)
		b.refuses("delete", func() { b.patch(`{"spec":{"replicas":1}}`) })
	},
	v1alpha1.EventSelectingAll: func(b *bench) {
		b.create(3, func(set *v1alpha1.MachineSet) { set.Spec.Selector = &metav1.LabelSelector{} })
		b.touches()
	},
	v1alpha1.ReasonSelectorMatchesNothing: func(b *bench) {
		b.create(3, func(set *v1alpha1.MachineSet) { set.Spec.Selector = nil })
		b.touches()
	},
	v1alpha1.ReasonInvalidClass: func(b *bench) {
		b.class.problem = "there is no Secret"
		b.create(0)
		b.touches()
	},
	v1alpha1.ReasonTargetUnavailable: func(b *bench) {
		b.target.problem = "no Secret"
		b.create(1)
		for i := range manyTimes {
			b.target.problem = fmt.Sprint("error ", i)
			b.pass(time.Minute)
		}
	},
	v1alpha1.ReasonInvalidSpec: func(b *bench) {
		b.create(3, func(set *v1alpha1.MachineSet) { set.Spec.Template.Spec.Class.Name = "" })
		b.touches()
		b.patch(`{"spec":{"minReadySeconds":5}}`) // which is no mistake, and does not mend the other
		b.touches()
	},
}

// reportedByOthers are Events of MachineSets that other packages emit.
var reportedByOthers = []string{
	v1alpha1.EventDeleting,
	v1alpha1.EventNotAlone, v1alpha1.EventNotSelected, v1alpha1.EventNotLabeled, v1alpha1.EventSlotUnowned, v1alpha1.EventUndecodable,
	v1alpha1.EventCircuitBreakerOpen,
	v1alpha1.EventReplacementResumed,
	v1alpha1.EventFrozeMachineSet, v1alpha1.EventUnfrozeMachineSet,
	v1alpha1.EventAPIServerAway, v1alpha1.EventAPIServerBack,
	v1alpha1.ReasonThresholdsIgnored, v1alpha1.EventDeletionsHeld, v1alpha1.EventDeletionsReleased,
	v1alpha1.EventAccountCircuitBreakerOpen,
}

// TestEachEventIsEmittedOnce plays what leads to each Event of a MachineSet, and a hundred times
// more than once.
func TestEachEventIsEmittedOnce(t *testing.T) {
	for _, row := range v1alpha1.EventReasons() {
		if !slices.Contains(row.On, "MachineSet") || slices.Contains(reportedByOthers, row.Reason) {
			continue
		}
		t.Run(row.Reason, func(t *testing.T) {
			play, known := plays[row.Reason]
			if !known {
				t.Fatal("a reason without a play: add what leads to it to plays")
			}
			onBench(t, func(b *bench) {
				play(b)
				if n := b.reported.Count(row); n != 1 {
					t.Errorf("emitted %d times, want once; all Events: %v", n, b.reported.List())
				}
			})
		})
	}
}

// TestEachInvalidFieldIsReported: a spec that is wrong in another way than before is reported, also
// if the condition is unchanged.
func TestEachInvalidFieldIsReported(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create(1, func(set *v1alpha1.MachineSet) { set.Spec.Template.Spec.Class.Name = "" })
		b.patch(`{"spec":{"replicas":-1}}`)
		b.pass(time.Minute)
		b.patch(`{"spec":{"replicas":1,"template":{"spec":{"class":{"name":"c"}}}}}`)
		b.pass(time.Minute)
		b.patch(`{"spec":{"replicas":-1}}`)
		b.pass(time.Minute)
		invalid := "Warning " + v1alpha1.ReasonInvalidSpec
		want := []string{invalid, invalid, "Normal " + v1alpha1.EventSuccessfulCreate, invalid}
		if got := b.reported.List(); !slices.Equal(got, want) {
			b.Errorf("Events %v, want %v", got, want)
		}
	})
}
