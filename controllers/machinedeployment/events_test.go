package machinedeployment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apitest"
)

// manyTimes is how often something is tried that is reported once.
const manyTimes = 100

// bench is a whole controller before an API server in memory, in a bubble, where time passes when
// all goroutines rest.
type bench struct {
	*testing.T

	server     *apiserver.Server
	view       *objectcache.View
	reported   *apitest.EventLog
	nodes      *nodeServer
	controller *Controller
}

// configOf returns a Config of which only required fields are set.
func configOf(server *apiserver.Server, view *objectcache.View, recorder events.EventRecorder) Config {
	return Config{Machines: server.Machines(), Metadata: server.Metadata(), View: view, Events: recorder, Clock: clock.RealClock{}}
}

func onBench(t *testing.T, test func(b *bench), settings ...func(b *bench, cfg *Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, server: apiserver.Recording(), reported: &apitest.EventLog{}}
		view := objectcache.NewView()
		b.view = view
		cfg := configOf(b.server, view, b.reported)
		for _, set := range settings {
			set(b, &cfg)
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
		test(b)
	})
}

// create creates a MachineDeployment of two machines.
func (b *bench) create(change ...func(*v1alpha1.MachineDeploymentSpec)) {
	b.Helper()
	b.createUnlabeled(change...)
	b.patch(`{"metadata":{"labels":{%q:"7"}}}`, v1alpha1.LabelSlot)
	b.pass(time.Minute)
}

// createUnlabeled creates one that is in no slot yet.
func (b *bench) createUnlabeled(change ...func(*v1alpha1.MachineDeploymentSpec)) {
	b.Helper()
	labels := map[string]string{v1alpha1.LabelName: "d"}
	d := &v1alpha1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "d"},
		Spec: v1alpha1.MachineDeploymentSpec{
			Replicas: 2, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Strategy: v1alpha1.MachineDeploymentStrategy{Type: v1alpha1.RecreateMachineDeploymentStrategyType},
			Template: v1alpha1.MachineTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: "c"}},
			},
		},
	}
	for _, f := range change {
		f(&d.Spec)
	}
	apiserver.Add(b.server, d)
}

// sets are the sets that there are.
func (b *bench) sets() []*v1alpha1.MachineSet { return b.view.Sets.All() }

func (b *bench) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (b *bench) patch(format string, args ...any) {
	b.Helper()
	b.server.Merge("machinedeployments", "n", "d", fmt.Sprintf(format, args...))
}

// touches has the deployment looked at manyTimes.
func (b *bench) touches() {
	b.Helper()
	for i := range manyTimes {
		b.patch(`{"metadata":{"annotations":{"touched":"%d"}}}`, i)
		b.pass(time.Minute)
	}
}

// unavailable are target clusters that are not available.
type unavailable struct{ target.None }

func (unavailable) For(namespace string) (*target.Cluster, error) {
	return nil, &target.UnavailableError{Namespace: namespace, Reason: "no Secret"}
}

// plays lead to each Event of a MachineDeployment, and then repeat the cause, manyTimes.
var plays = map[string]func(b *bench){
	v1alpha1.EventScalingMachineSet: func(b *bench) {
		b.create() // from none to two
		b.touches()
	},
	v1alpha1.EventRolloutStarted: func(b *bench) {
		b.create()
		b.touches()
	},
	v1alpha1.EventRolloutStalled: func(b *bench) { // its machines do not exist
		b.create()
		b.touches()
	},
	v1alpha1.EventRolloutComplete: func(b *bench) {
		b.create(func(d *v1alpha1.MachineDeploymentSpec) { d.Replicas = 0 })
		b.touches()
	},
	v1alpha1.EventRolloutPaused: func(b *bench) {
		b.create()
		b.patch(`{"spec":{"paused":true}}`)
		b.touches()
	},
	v1alpha1.EventRolloutResumed: func(b *bench) {
		b.create(func(d *v1alpha1.MachineDeploymentSpec) { d.Paused = true })
		b.patch(`{"spec":{"paused":false}}`)
		b.touches()
	},
	v1alpha1.EventRollbackWaits: func(b *bench) {
		b.create()
		b.patch(`{"spec":{"paused":true,"rollbackTo":{"revision":7}}}`)
		b.touches()
	},
	v1alpha1.EventSelectedForUpdate: playInPlace,
	v1alpha1.EventUpdatedInPlace:    playInPlace,
	v1alpha1.ReasonMachineSetCreateError: func(b *bench) {
		b.server.Refuse("create machinesets", errors.New("not now"))
		b.create()
		b.pass(manyTimes * 2 * time.Minute)
		if tried := b.server.Count("create machinesets"); tried < manyTimes {
			b.Errorf("tried %d times, want %d", tried, manyTimes)
		}
	},
	v1alpha1.EventRollback: func(b *bench) {
		b.create()
		b.patch(`{"spec":{"template":{"metadata":{"annotations":{"changed":"yes"}}}}}`)
		b.pass(time.Minute)
		b.patch(`{"spec":{"rollbackTo":{"revision":1}}}`)
		b.touches()
	},
	v1alpha1.EventRollbackRevisionNotFound: func(b *bench) {
		b.create()
		b.patch(`{"spec":{"rollbackTo":{"revision":7}}}`)
		b.touches()
	},
	v1alpha1.EventRollbackRefused: func(b *bench) {
		b.create()
		b.patch(`{"spec":{"template":{"metadata":{"annotations":{"changed":"yes"}}}}}`)
		b.pass(time.Minute)
		b.server.Fault(func(r apiserver.Request) error {
			if r.What() == "patch machinedeployments" && strings.Contains(string(r.Content), `"template"`) {
				return apierrors.NewInvalid(schema.GroupKind{Group: "machine.sapcloud.io", Kind: "MachineDeployment"}, "d", nil)
			}
			return nil
		})
		b.patch(`{"spec":{"rollbackTo":{"revision":1}}}`)
		b.touches()
		if d := b.deployment(); d.Spec.RollbackTo != nil || d.Status.ObservedGeneration != d.Generation {
			b.Errorf("rollbackTo is %v, and generation %d of %d is observed: the deployment is not reconciled",
				d.Spec.RollbackTo, d.Status.ObservedGeneration, d.Generation)
		}
	},
	v1alpha1.EventRollbackTemplateUnchanged: func(b *bench) {
		b.create()
		b.patch(`{"spec":{"rollbackTo":{"revision":1}}}`)
		b.touches()
	},
	v1alpha1.ReasonNoStrategy: func(b *bench) {
		b.createUnlabeled(func(d *v1alpha1.MachineDeploymentSpec) { d.Strategy.Type = "" })
		b.pass(time.Hour) // in which nothing was done about it
		b.patch(`{"metadata":{"labels":{%q:"7"}}}`, v1alpha1.LabelSlot)
		b.touches()
		if sets := b.sets(); len(sets) > 0 {
			b.Errorf("it has got sets: %v", sets)
		}
		b.patch(`{"spec":{"replicas":3}}`)
		b.pass(time.Minute)
		if sets := b.sets(); len(sets) != 1 || sets[0].Spec.Replicas != 3 {
			b.Errorf("sets when its spec has changed: %v", sets)
		}
	},
	v1alpha1.EventUndecodable: func(b *bench) { // on a set of the deployment's
		b.create()
		b.server.SetUndecodable("machinesets", "n", b.mine()[0].Name, true)
		b.touches()
	},
	v1alpha1.EventReleased: func(b *bench) {
		b.create()
		b.drift()
		b.touches()
	},
	v1alpha1.EventSelectingAll: func(b *bench) {
		b.create(func(d *v1alpha1.MachineDeploymentSpec) { d.Selector = &metav1.LabelSelector{} })
		b.touches()
	},
	v1alpha1.ReasonSelectorMatchesNothing: func(b *bench) {
		b.create(func(d *v1alpha1.MachineDeploymentSpec) { d.Selector = nil })
		b.touches()
	},
	v1alpha1.ReasonTargetUnavailable: func(b *bench) {
		b.controller.cfg.Targets = unavailable{}
		b.create()
		b.touches()
	},
	v1alpha1.ReasonInvalidSpec: func(b *bench) {
		b.create(func(d *v1alpha1.MachineDeploymentSpec) { d.Strategy.Type = "Hope" })
		b.touches()
		b.patch(`{"spec":{"minReadySeconds":5}}`) // which is no mistake, and does not mend the other
		b.touches()
	},
}

// reportedByOthers are Events of MachineDeployments that other packages emit.
var reportedByOthers = []string{
	v1alpha1.EventDeleting, v1alpha1.EventSuccessfulDelete,
	v1alpha1.EventNotAlone, v1alpha1.EventNotSelected, v1alpha1.EventNotLabeled, v1alpha1.EventSlotUnowned, v1alpha1.EventCircuitBreakerOpen,
	v1alpha1.EventReplacementResumed,
	v1alpha1.EventAPIServerAway, v1alpha1.EventAPIServerBack,
	v1alpha1.ReasonThresholdsIgnored, v1alpha1.EventDeletionsHeld, v1alpha1.EventDeletionsReleased,
	v1alpha1.EventMachineConfigChanged, v1alpha1.EventAccountCircuitBreakerOpen,
}

// TestEachEventIsEmittedOnce plays what leads to each Event of a MachineDeployment, and a hundred
// times more than once.
func TestEachEventIsEmittedOnce(t *testing.T) {
	for _, row := range v1alpha1.EventReasons() {
		if !slices.Contains(row.On, "MachineDeployment") || slices.Contains(reportedByOthers, row.Reason) {
			continue
		}
		t.Run(row.Reason, func(t *testing.T) {
			play, known := plays[row.Reason]
			if !known {
				t.Fatal("a reason without a play: add what leads to it to plays")
			}
			n := &nodeServer{}
			onBench(t, func(b *bench) {
				b.nodes = n
				play(b)
				if n := b.reported.Count(row); n != 1 {
					t.Errorf("reported %d times, want once; all reports: %v", n, b.reported.List())
				}
			}, withNode(n))
		})
	}
}

// TestEachInvalidFieldIsReported: a spec that is wrong in another way than before is reported, also
// where the condition has the same reason.
func TestEachInvalidFieldIsReported(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create(func(d *v1alpha1.MachineDeploymentSpec) { d.Strategy.Type = "Hope" })
		b.patch(`{"spec":{"strategy":{"type":"Faith"}}}`)
		b.pass(time.Minute)
		b.patch(`{"spec":{"strategy":{"type":"Recreate"}}}`)
		b.pass(time.Minute)
		b.patch(`{"spec":{"strategy":{"type":"Hope"}}}`)
		b.pass(time.Minute)
		invalid := "Warning " + v1alpha1.ReasonInvalidSpec
		want := []string{invalid, invalid, "Normal " + v1alpha1.EventRolloutStarted, "Normal " + v1alpha1.EventScalingMachineSet, invalid}
		if got := b.reported.List(); !slices.Equal(got, want) {
			b.Errorf("reported %v, want %v", got, want)
		}
	})
}
