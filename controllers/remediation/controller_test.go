package remediation

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machinefake "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/fake"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a controller, the only one in a fleet with one slot, with an API server whose changes it
// receives at once.
type bench struct {
	*testing.T

	*Controller
	view    *objectcache.View
	cluster *target.Cluster
	api     *machinefake.Clientset
	spaces  *namespaces

	mu       sync.Mutex
	version  int
	reported []string
	looked   []string // the names of the roots over which there was a pass
}

// Admit admits all roots, and records them.
func (b *bench) Admit(ctx context.Context, key types.NamespacedName) (context.Context, func(), bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.looked = append(b.looked, key.Name)
	return ctx, func() {}, true
}

// passes returns over which roots there was a pass since the last call.
func (b *bench) passes() string {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.Sort(b.looked)
	names := strings.Join(slices.Compact(b.looked), " ")
	b.looked = nil
	return names
}

// Eventf records Events.
func (b *bench) Eventf(about, _ runtime.Object, eventtype, reason, _, note string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	name := ""
	if obj, ok := about.(metav1.Object); ok {
		name = obj.GetName()
	}
	b.reported = append(b.reported, fmt.Sprintf("%s %s %s: %s", name, eventtype, reason, fmt.Sprintf(note, args...)))
}

func (b *bench) events() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.reported)
}

func newBench(t *testing.T, roots ...runtime.Object) *bench {
	t.Helper()
	b := &bench{
		T: t, view: objectcache.NewView(), cluster: target.New(nil), api: machinefake.NewSimpleClientset(roots...), version: 100,
		spaces: &namespaces{known: true},
	}
	b.api.PrependReactor("patch", "*", b.patch)
	thresholds := disruption.DefaultThresholds()
	thresholds.NotReady = 5 // the machines have no Nodes, so that none counts as Ready
	c, err := New(Config{
		Machines: b.api.MachineV1alpha1(), View: b.view, Targets: target.Single{Cluster: b.cluster}, Namespaces: b.spaces,
		DeploymentEvents: b, SetEvents: b, Replica: "r",
		Limits: disruption.Limits{HealthTimeout: 10 * time.Minute, Budget: intstr.FromInt32(1), Thresholds: thresholds},
		SlotOf: func(labels map[string]string) (int, bool) {
			slot, err := strconv.Atoi(labels[v1alpha1.LabelSlot])
			return slot, err == nil
		},
		Holds: func(slot int) bool { return slot == 0 }, Held: apitest.NotHeld, Clock: clock.RealClock{}, DeploymentGate: b, SetGate: b,
	})
	if err != nil {
		t.Fatal(err)
	}
	b.Controller = c
	return b
}

// patch applies a patch as an API server does: the object gets a new version, which the watch
// shows.
func (b *bench) patch(action clienttesting.Action) (handled bool, obj runtime.Object, err error) {
	handled, obj, err = clienttesting.ObjectReaction(b.api.Tracker())(action)
	if err == nil {
		b.feed(obj)
	}
	return handled, obj, err
}

// feed stores a new version of an object in the View. The test calls it, and each write of the
// controller does.
func (b *bench) feed(obj any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.version++
	if o, ok := obj.(metav1.Object); ok {
		o.SetResourceVersion(strconv.Itoa(b.version))
	}
	switch o := obj.(type) {
	case *v1alpha1.MachineDeployment:
		b.view.Deployments.Apply(o, false)
	case *v1alpha1.MachineSet:
		b.view.Sets.Apply(o, false)
	case *v1alpha1.Machine:
		b.view.Machines.Apply(o, false)
	case *v1alpha1.MachineClass:
		b.view.Classes.Apply(o, false)
	case *corev1.Node:
		b.cluster.Nodes.Apply(o, false)
	default:
		b.Fatalf("unexpected type %T", obj)
	}
}

// join stores a machine whose Node is bound to it.
func (b *bench) join(m *v1alpha1.Machine) {
	b.feed(nodeOf(m))
	b.feed(m)
}

func nodeOf(m *v1alpha1.Machine) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: m.Labels[v1alpha1.LabelNode], Annotations: map[string]string{v1alpha1.AnnotationMachine: v1alpha1.RefOf(m).String()},
	}}
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID(name), Labels: map[string]string{v1alpha1.LabelSlot: "0"}}
}

func deployment() *v1alpha1.MachineDeployment {
	return &v1alpha1.MachineDeployment{ObjectMeta: meta("d")}
}

func set(name string, owner *v1alpha1.MachineDeployment, replicas int32) *v1alpha1.MachineSet {
	s := &v1alpha1.MachineSet{ObjectMeta: meta(name)}
	s.Spec.Replicas = replicas
	if owner != nil {
		s.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, v1alpha1.SchemeGroupVersion.WithKind("MachineDeployment"))}
	}
	return s
}

// machine returns a machine of a class in zone z1.
func machine(s *v1alpha1.MachineSet, i int, phase v1alpha1.MachinePhase, since time.Time) *v1alpha1.Machine {
	m := &v1alpha1.Machine{ObjectMeta: meta(fmt.Sprint(s.Name, "-", i))}
	m.Labels[v1alpha1.LabelNode] = m.Name
	m.Spec.Class.Name = "c"
	m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(s, v1alpha1.SchemeGroupVersion.WithKind("MachineSet"))}
	m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: phase, LastUpdateTime: metav1.NewTime(since)}
	m.Status.LastOperation.Type = v1alpha1.MachineOperationHealthCheck
	return m
}

func class() *v1alpha1.MachineClass {
	return &v1alpha1.MachineClass{ObjectMeta: meta("c"), NodeTemplate: &v1alpha1.NodeTemplate{Zone: "z1"}}
}

// during runs the controller while f runs, in a bubble of synctest, in which time advances as soon
// as no goroutine can continue.
func during(t *testing.T, roots []runtime.Object, f func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, roots...)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { b.Controller.Run(ctx) })
		defer running.Wait()
		defer stop()
		f(b)
	})
}

// end ends a controller that does not run.
func (b *bench) end() {
	ended, stop := context.WithCancel(context.Background())
	stop()
	b.Controller.Run(ended)
}

func (b *bench) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (b *bench) deployment() *v1alpha1.MachineDeployment {
	d, _ := b.view.Deployments.Get(types.NamespacedName{Namespace: "n", Name: "d"})
	return d
}

func disruptions(t *testing.T, root metav1.Object) (names []string) {
	t.Helper()
	all, err := disruption.ReadDisruptions(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		names = append(names, p.Name)
	}
	return names
}

// A zone fails and recovers: the deployment gets the condition and loses it, and no machine gets a
// disruption meanwhile. Then one machine becomes unhealthy, and gets one.
func TestDarkZoneOpensTheBreaker(t *testing.T) {
	d := deployment()
	s := set("s", d, 10)
	during(t, []runtime.Object{d}, func(b *bench) {
		for _, obj := range []any{class(), d, s} {
			b.feed(obj)
		}
		show := func(unhealthy int) {
			for i := range 10 {
				phase := v1alpha1.MachineRunning
				if i < unhealthy {
					phase = v1alpha1.MachineUnknown
				}
				b.join(machine(s, i, phase, time.Now()))
			}
		}
		show(0)
		b.Breakers().Receive(nil, []string{"r"})
		b.wait(time.Minute)
		if text, ok := b.Breakers().Report(); !ok || text != `{"counts":{"/z1":{"0":[10,0]}}}` {
			t.Errorf("reported %q (%v)", text, ok)
		}
		show(6)
		b.wait(30 * time.Minute)
		if c := b.deployment().Status.Conditions; len(c) != 1 || c[0].Type != v1alpha1.MachineDeploymentCircuitBreakerOpen ||
			c[0].Status != corev1.ConditionTrue || c[0].Reason != v1alpha1.ReasonTargetNotReady ||
			!strings.Contains(c[0].Message, "less than 30 %") {
			t.Errorf("conditions %+v", c)
		}
		if got := disruptions(t, b.deployment()); len(got) > 0 {
			t.Errorf("disruptions for %v while the zone is not Ready", got)
		}
		show(0)
		b.wait(4*time.Minute + 50*time.Second)
		if len(b.deployment().Status.Conditions) != 1 {
			t.Error("the circuit breaker closed too early")
		}
		b.wait(20 * time.Second)
		if c := b.deployment().Status.Conditions; len(c) > 0 {
			t.Errorf("conditions %+v are left", c)
		}
		show(1)
		b.wait(9*time.Minute + 59*time.Second)
		if got := disruptions(t, b.deployment()); len(got) > 0 {
			t.Errorf("disruptions for %v before the timeout", got)
		}
		b.wait(2 * time.Second)
		if got := disruptions(t, b.deployment()); !slices.Equal(got, []string{"s-0"}) {
			t.Errorf("disruptions for %v, want s-0", got)
		}
		show(0)
		b.wait(time.Second)
		if _, left := b.deployment().Annotations[v1alpha1.AnnotationDisruptions]; left {
			t.Error("the annotation is left")
		}
		events := b.events()
		if len(events) != 2 || !strings.HasPrefix(events[0],
			"d Warning CircuitBreakerOpen: Unhealthy machines are not replaced for now: 6 of 10 machines in the target cluster are not Ready") ||
			!strings.HasPrefix(events[1], "d Normal ReplacementResumed") {
			t.Errorf("Events %q", events)
		}
	})
}

// A new holder cannot know since when a zone has been well whose circuit breaker is open according
// to the deployment. It waits for the whole time, also if the zone would not open the breaker
// again.
func TestNewHolderKeepsTheBreakerOpen(t *testing.T) {
	for name, tc := range map[string]struct {
		condition string
		unhealthy int
		after     time.Duration
		closes    bool
	}{
		"open, and well since the start":        {v1alpha1.ReasonZoneNotReady, 2, 5*time.Minute + 2*time.Second, true},
		"open, and well for a shorter time":     {v1alpha1.ReasonZoneNotReady, 2, 4*time.Minute + 50*time.Second, false},
		"open, and not well enough":             {v1alpha1.ReasonZoneNotReady, 4, time.Hour, false},
		"open for its cluster, not well enough": {v1alpha1.ReasonTargetNotReady, 4, time.Hour, false},
		"not open, and not well enough then":    {"", 4, 2 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := deployment()
			if tc.condition != "" {
				machinefacts.SetConditionOfDeployment(&d.Status, v1alpha1.MachineDeploymentCircuitBreakerOpen,
					machinefacts.True(tc.condition, "as before"), time.Unix(1, 0))
			}
			s := set("s", d, 10)
			during(t, []runtime.Object{d}, func(b *bench) {
				b.Breakers().Receive(nil, []string{"r"})
				for _, obj := range []any{class(), s} {
					b.feed(obj)
				}
				for i := range 10 {
					phase := v1alpha1.MachineRunning
					if i < tc.unhealthy {
						phase = v1alpha1.MachineUnknown
					}
					b.join(machine(s, i, phase, time.Now().Add(-time.Hour)))
				}
				b.wait(2 * time.Second)
				b.feed(d) // last, as if its slot were opened now
				b.wait(tc.after)
				if got := len(disruptions(t, b.deployment())) > 0; got != tc.closes {
					t.Errorf("disruption: %v, want %v; conditions %+v", got, tc.closes, b.deployment().Status.Conditions)
				}
				if got := len(b.deployment().Status.Conditions) == 0; got != tc.closes {
					t.Errorf("conditions %+v", b.deployment().Status.Conditions)
				}
			})
		})
	}
}

// A set without a controller is a root like a deployment; one with a controller is not.
func TestSetsWithoutControllerAreRoots(t *testing.T) {
	d := deployment()
	alone, owned := set("alone", nil, 6), set("owned", d, 1)
	during(t, []runtime.Object{d, alone, owned}, func(b *bench) {
		b.Breakers().Receive(nil, []string{"r"})
		for _, obj := range []any{class(), d, alone, owned} {
			b.feed(obj)
		}
		b.feed(machine(owned, 0, v1alpha1.MachineUnknown, time.Now()))
		for i := range 6 {
			phase := v1alpha1.MachineRunning
			if i == 0 {
				phase = v1alpha1.MachineUnknown
			}
			b.feed(machine(alone, i, phase, time.Now()))
		}
		b.wait(11 * time.Minute)
		root := func(name string) *v1alpha1.MachineSet {
			s, _ := b.view.Sets.Get(types.NamespacedName{Namespace: "n", Name: name})
			return s
		}
		for name, got := range map[string][]string{
			"alone-0": disruptions(t, root("alone")), "owned-0": disruptions(t, b.deployment()), "": disruptions(t, root("owned")),
		} {
			if strings.Join(got, ",") != name {
				t.Errorf("disruptions for %v, want %q", got, name)
			}
		}
		for i := range 6 {
			b.feed(machine(alone, i, v1alpha1.MachineUnknown, time.Now()))
		}
		b.wait(2 * time.Second)
		if c := root("alone").Status.Conditions; len(c) != 1 || c[0].Type != v1alpha1.MachineSetCircuitBreakerOpen ||
			c[0].Reason != v1alpha1.ReasonTargetNotReady {
			t.Errorf("conditions %+v", c)
		}
		if c := root("owned").Status.Conditions; len(c) > 0 {
			t.Errorf("conditions %+v on a set that is not a root", c)
		}
	})
}

// No machine gets a disruption while slots have not been counted: their machines may have the same
// problem.
func TestNoDisruptionBeforeAllSlotsAreCounted(t *testing.T) {
	d := deployment()
	s := set("s", d, 2)
	during(t, []runtime.Object{d}, func(b *bench) {
		b.Breakers().Receive(map[string]string{"other": "{}"}, []string{"r", "other"})
		for _, obj := range []any{
			class(), d, s, machine(s, 0, v1alpha1.MachineUnknown, time.Now()), machine(s, 1, v1alpha1.MachineRunning, time.Now()),
		} {
			b.feed(obj)
		}
		b.wait(time.Hour)
		if got := disruptions(t, b.deployment()); len(got) > 0 {
			t.Errorf("disruptions for %v", got)
		}
		b.Breakers().Receive(map[string]string{"other": `{"empty":[1]}`}, []string{"r", "other"})
		b.wait(2 * time.Second)
		if got := disruptions(t, b.deployment()); len(got) != 1 {
			t.Errorf("disruptions for %v, want one", got)
		}
	})
}

// Reports of other replicas count: a zone that is not Ready in their slots has an open circuit
// breaker here as well.
func TestReportsOfOtherReplicasCount(t *testing.T) {
	d := deployment()
	s := set("s", d, 2)
	during(t, []runtime.Object{d}, func(b *bench) {
		b.Breakers().Receive(map[string]string{"other": `{"counts":{"/z1":{"1":[0,9]}}}`}, []string{"r", "other"})
		for _, obj := range []any{
			class(), d, s, machine(s, 0, v1alpha1.MachineUnknown, time.Now()), machine(s, 1, v1alpha1.MachineRunning, time.Now()),
		} {
			b.feed(obj)
		}
		b.wait(time.Hour)
		b.expectOpen()
	})
}

func TestScopeOfAMachine(t *testing.T) {
	b := newBench(t)
	defer b.end()
	s := set("s", nil, 1)
	m := machine(s, 0, v1alpha1.MachineRunning, time.Now())
	if got := b.tree.scopeOf(m); got != (disruption.Scope{}) {
		t.Errorf("without Node and class its scope is %s", got)
	}
	b.cluster.Name = "shoot"
	b.feed(class())
	if got := b.tree.scopeOf(m); got != (disruption.Scope{Target: "shoot", Zone: "z1"}) {
		t.Errorf("its scope is %s, want the zone of its class", got)
	}
	none := b.cfg
	none.Targets = target.None{}
	without, err := New(none)
	if err != nil {
		t.Fatal(err)
	}
	(&bench{Controller: without}).end()
	if got := without.tree.scopeOf(m); got != (disruption.Scope{Zone: "z1"}) {
		t.Errorf("without a target cluster its scope is %s", got)
	}
	bare := class()
	bare.NodeTemplate = nil
	b.feed(bare)
	if got := b.tree.scopeOf(m); got != (disruption.Scope{Target: "shoot"}) {
		t.Errorf("its scope is %s, and its class has no Node template", got)
	}
	long := class()
	long.NodeTemplate.Zone = strings.Repeat("z", 64)
	b.feed(long)
	if got := b.tree.scopeOf(m); got != (disruption.Scope{Target: "shoot"}) {
		t.Errorf("its scope is %s, and its class names no zone", got)
	}
	b.feed(class())
	for name, tc := range map[string]struct {
		change func(*corev1.Node)
		want   string
	}{
		"bound to it":                    {func(*corev1.Node) {}, "z2"},
		"bound to none":                  {func(n *corev1.Node) { n.Annotations = nil }, "z1"},
		"bound to another machine":       {func(n *corev1.Node) { n.Annotations[v1alpha1.AnnotationMachine] = "n/other/uid" }, "z1"},
		"bound to it, and of another VM": {func(n *corev1.Node) { n.Spec.ProviderID = "cloud:///other" }, "z1"},
	} {
		node := nodeOf(m)
		node.Labels = map[string]string{corev1.LabelTopologyZone: "z2"}
		tc.change(node)
		b.feed(node)
		if got := b.tree.scopeOf(m); got != (disruption.Scope{Target: "shoot", Zone: tc.want}) {
			t.Errorf("Node %s: its scope is %s, want %s", name, got, tc.want)
		}
	}
}
