package join

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/join/stamp"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apitest"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/bubbles"
)

func TestMain(m *testing.M) { bubbles.Main(m) }

const prefix = v1alpha1.DaemonPrefix

// cachedPools are Pools that a test shows.
type cachedPools struct {
	handlers []func(before, after *v1alpha1.MachineConfigPool)

	mu  sync.Mutex
	all map[string]*v1alpha1.MachineConfigPool
}

func (p *cachedPools) Pool(name string) (*v1alpha1.MachineConfigPool, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pool, ok := p.all[name]
	return pool, ok
}

func (p *cachedPools) Pools() (all []*v1alpha1.MachineConfigPool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pool := range p.all {
		all = append(all, pool)
	}
	return all
}

func (p *cachedPools) OnPool(f func(before, after *v1alpha1.MachineConfigPool)) {
	p.handlers = append(p.handlers, f)
}

// show has the cache deliver a version of a pool.
func (p *cachedPools) show(pool *v1alpha1.MachineConfigPool) {
	p.mu.Lock()
	before := p.all[pool.Name]
	p.all[pool.Name] = pool
	p.mu.Unlock()
	for _, handle := range p.handlers {
		handle(before, pool)
	}
}

// bench is the controller before an API server in memory of both clusters, with the
// MachineDeployment n/d, its one machine "m" and the Node of it.
type bench struct {
	*testing.T

	server  *apiserver.Server
	view    *objectcache.View
	pools   *cachedPools
	cluster *target.Cluster
	events  *apitest.EventLog
}

func onBench(t *testing.T, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{
			T: t, server: apiserver.Recording(), pools: &cachedPools{all: map[string]*v1alpha1.MachineConfigPool{}}, events: &apitest.EventLog{},
		}
		b.cluster = target.New(b.server.Core())
		b.view = objectcache.NewView()
		c, err := New(Config{
			Machines: b.server.Machines(), Fleet: b.server.Configs(), Pools: b.pools, View: b.view, Cluster: b.cluster, NewSet: newest,
			Prefix: prefix,
			Events: b.events, Clock: clock.RealClock{},
		})
		if err != nil {
			t.Fatal(err)
		}
		b.server.ShowIn(b.view)
		ctx, end := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{})) // what fails here is meant to
		go c.Run(ctx)
		defer end()
		b.create()
		test(b)
	})
}

func (b *bench) create() {
	b.Helper()
	d := apiserver.Add(b.server, &machinev1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "d"}})
	old := apiserver.Add(b.server, b.set(d, "old", ""))
	apiserver.Add(b.server, b.set(d, "new", "rendered-p-b"))
	m := apiserver.Add(b.server, &machinev1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "n", Name: "m", Labels: map[string]string{machinev1alpha1.LabelNode: "m-node"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(old, machinev1alpha1.SchemeGroupVersion.WithKind("MachineSet"))},
	}})
	apiserver.Add(b.server, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m-node", Annotations: map[string]string{
		machinev1alpha1.AnnotationMachine: machinev1alpha1.RefOf(m).String(), machinev1alpha1.AnnotationUpdateTo: "new",
	}}})
	apiserver.Follow(b.server, "nodes", func(node *corev1.Node, _ bool) { b.cluster.Nodes.Apply(node, false) })
}

// newest returns the set whose template names the same configuration as that of the
// MachineDeployment.
func newest(d *machinev1alpha1.MachineDeployment, sets []*machinev1alpha1.MachineSet) *machinev1alpha1.MachineSet {
	for _, set := range sets {
		if set.Spec.Template.Annotations[v1alpha1.AnnotationMachineConfig] == d.Spec.Template.Annotations[v1alpha1.AnnotationMachineConfig] {
			return set
		}
	}
	return nil
}

func (b *bench) set(d *machinev1alpha1.MachineDeployment, name, config string) *machinev1alpha1.MachineSet {
	set := &machinev1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "n", Name: name,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, machinev1alpha1.SchemeGroupVersion.WithKind("MachineDeployment"))},
	}}
	if config != "" {
		set.Spec.Template.Annotations = map[string]string{v1alpha1.AnnotationMachineConfig: config}
	}
	return set
}

// pool returns a version of a pool that refers to the MachineDeployment.
func pool(config string) *v1alpha1.MachineConfigPool {
	p := &v1alpha1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "uid-p"}}
	p.Spec.Rollout = v1alpha1.RolloutMachineDeployment
	p.Spec.MachineRef = &v1alpha1.MachineReference{Kind: stamp.KindDeployment, Namespace: "n", Name: "d"}
	p.Status.CurrentMachineConfig = config
	return p
}

// store stores a pool in the API server.
func (b *bench) store(p *v1alpha1.MachineConfigPool) { apiserver.Add(b.server, p) }

func (b *bench) deployment() *machinev1alpha1.MachineDeployment {
	return apiserver.Read[machinev1alpha1.MachineDeployment](b.server, "machinedeployments", "n", "d")
}

func (b *bench) stamp() string {
	return b.deployment().Spec.Template.Annotations[v1alpha1.AnnotationMachineConfig]
}

// change changes the Node as another client.
func (b *bench) change(f func(node *corev1.Node)) {
	apiserver.Change(b.server, "nodes", "", "m-node", f)
}

// pass lets time pass.
func (b *bench) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// written returns the writes of the Node.
func (b *bench) written() []string { return b.server.Sent("patch nodes") }

func TestStampIsWrittenOnce(t *testing.T) {
	onBench(t, func(b *bench) {
		b.store(pool("rendered-p-b"))
		b.pools.show(pool("rendered-p-b"))
		b.pass(time.Minute)
		if got := b.stamp(); got != "rendered-p-b" {
			t.Errorf("the template has %q", got)
		}
		written := b.server.Writes()
		b.pools.show(pool("rendered-p-b"))
		b.pass(time.Hour)
		if got := b.server.Writes(); got != written || b.server.Count("get machineconfigpools") != 1 {
			t.Errorf("%d more writes, %d reads of the pool", got-written, b.server.Count("get machineconfigpools"))
		}
		if got := b.events.List(); len(got) != 1 || got[0] != "Normal MachineConfigChanged" {
			t.Errorf("Events %q", got)
		}
	})
}

// A MachineDeployment that was created anew while the watch was interrupted has the generation of
// the one before.
func TestStampOfAMachineDeploymentInThePlaceOfAnother(t *testing.T) {
	onBench(t, func(b *bench) {
		b.store(pool("rendered-p-b"))
		b.pools.show(pool("rendered-p-b"))
		b.pass(time.Minute)
		b.server.ShowIn(objectcache.NewView())
		b.server.Delete("machinedeployments", "n", "d")
		apiserver.Add(b.server, &machinev1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "d"}})
		b.server.Merge("machinedeployments", "n", "d", `{"spec":{"minReadySeconds":1}}`) // as often as the one before
		if b.stamp() != "" {
			b.Fatalf("the template has %q", b.stamp())
		}
		b.server.ShowIn(b.view)
		b.pass(time.Minute)
		if got := b.stamp(); got != "rendered-p-b" {
			b.Errorf("the template has %q", got)
		}
	})
}

// A cache that is late shows an older target than the one that is stamped: the API server is asked
// before a template changes.
func TestLateCacheRestoresNoOlderTarget(t *testing.T) {
	onBench(t, func(b *bench) {
		b.store(pool("rendered-p-b"))
		b.pools.show(pool("rendered-p-b"))
		b.pass(time.Minute)
		b.pools.show(pool("rendered-p-a"))
		b.pass(time.Minute)
		if got := b.stamp(); got != "rendered-p-b" {
			t.Errorf("the template has %q", got)
		}
		paused := pool("rendered-p-c")
		paused.Spec.Paused = true
		b.store(paused)
		b.pools.show(pool("rendered-p-c")) // it was paused since
		b.pass(time.Minute)
		if got := b.stamp(); got != "rendered-p-b" {
			t.Errorf("the pool is paused, and the template has %q", got)
		}
	})
}

// ready has the Node drained for its update.
func (b *bench) ready() {
	b.store(pool(""))
	b.pools.show(pool(""))
	b.change(func(node *corev1.Node) {
		node.Spec.Unschedulable = true
		node.Status.Conditions = []corev1.NodeCondition{
			{Type: machinev1alpha1.NodeInPlaceUpdate, Status: corev1.ConditionTrue, Reason: machinev1alpha1.NodeReasonReadyForUpdate},
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
		}
	})
	b.pass(time.Second)
}

func (b *bench) report(annotations map[string]string) {
	b.change(func(node *corev1.Node) { maps.Copy(node.Annotations, annotations) })
	b.pass(time.Second)
}

func (b *bench) expect(key, want string) {
	b.Helper()
	node := apiserver.Read[corev1.Node](b.server, "nodes", "", "m-node")
	value, isLabel := node.Labels[key]
	if !isLabel {
		value = node.Annotations[key]
	}
	if value != want {
		b.Errorf("%s is %q, want %q", key, value, want)
	}
}

// Each step of the daemon has one write as its answer, and nothing is written between them.
func TestNodeIsUpdated(t *testing.T) {
	onBench(t, func(b *bench) {
		b.server.Fault(func(r apiserver.Request) error { // the first write is tried again
			if r.What() == "patch nodes" && len(b.written()) == 1 {
				return apierrors.NewInternalError(errors.New("no"))
			}
			return nil
		})
		b.ready()
		b.expect(prefix.DesiredConfig(), "rendered-p-b")
		b.report(map[string]string{prefix.State(): "working", prefix.DesiredDrain(): "drain-rendered-p-b"})
		b.expect(prefix.LastAppliedDrain(), "drain-rendered-p-b")
		b.report(map[string]string{prefix.CurrentConfig(): "rendered-p-b", prefix.DesiredDrain(): "uncordon-rendered-p-b"})
		b.expect(prefix.LastAppliedDrain(), "uncordon-rendered-p-b")
		b.expect(machinev1alpha1.LabelUpdateResult, "")
		b.report(map[string]string{prefix.State(): "done"})
		b.expect(machinev1alpha1.LabelUpdateResult, machinev1alpha1.UpdateResultSuccessful)
		for _, patch := range b.written() {
			if !strings.Contains(patch, `"uid":`) || !strings.Contains(patch, `"resourceVersion":`) {
				t.Errorf("the Node is written without preconditions: %s", patch)
			}
		}
		if got := len(b.written()); got != 5 {
			t.Errorf("%d writes, want 5: %q", got, b.written())
		}
		b.pass(time.Hour)
		if got := len(b.written()); got != 5 {
			t.Errorf("at rest there are %d more writes", got-5)
		}
	})
}

// A failure counts after a minute, from when it was reported with what is assigned, and one that
// passes does not.
func TestNodeFails(t *testing.T) {
	onBench(t, func(b *bench) {
		b.report(map[string]string{prefix.CurrentConfig(): "rendered-p-a", prefix.DesiredConfig(): "rendered-p-x", prefix.State(): "degraded"})
		b.ready() // it is degraded with the one before
		b.pass(stamp.FailAfter / 2)
		b.report(map[string]string{prefix.State(): "working"})
		b.pass(stamp.FailAfter)
		b.report(map[string]string{prefix.State(): "degraded", prefix.Reason(): "disk full"})
		b.pass(stamp.FailAfter - 2*time.Second)
		b.expect(machinev1alpha1.LabelUpdateResult, "")
		b.pass(2 * time.Second)
		b.expect(machinev1alpha1.LabelUpdateResult, machinev1alpha1.UpdateResultFailed)
		b.expect(machinev1alpha1.AnnotationUpdateFailedReason, "machine-config-daemon reports degraded with rendered-p-b: disk full")
		b.change(func(node *corev1.Node) { node.Status.Conditions[0].Reason = machinev1alpha1.NodeReasonUpdateFailed })
		b.report(map[string]string{prefix.CurrentConfig(): "rendered-p-b", prefix.State(): "done"})
		b.expect(machinev1alpha1.LabelUpdateResult, machinev1alpha1.UpdateResultSuccessful)
		b.expect(machinev1alpha1.AnnotationUpdateFailedReason, "")
	})
}

// roll gives the MachineDeployment a strategy, and pauses or resumes it.
func (b *bench) roll(by machinev1alpha1.MachineDeploymentStrategyType, isPaused bool) {
	b.Helper()
	b.server.Merge("machinedeployments", "n", "d", fmt.Sprintf(`{"spec":{"strategy":{"type":%q},"paused":%t}}`, by, isPaused))
	b.pass(time.Second)
}

// aim gives the pool a target.
func (b *bench) aim(config string) {
	b.store(pool(config))
	b.pools.show(pool(config))
	b.pass(time.Second)
}

// The target changes while a Node is updated, and again when that has failed: the Node is
// redirected when the MachineSet of the new template exists, and not while the MachineDeployment is
// paused, or replaces machines.
func TestNodeIsRedirected(t *testing.T) {
	const inPlace = machinev1alpha1.InPlaceUpdateMachineDeploymentStrategyType
	onBench(t, func(b *bench) {
		b.roll(inPlace, false)
		b.aim("rendered-p-b")
		b.ready()
		b.expect(prefix.DesiredConfig(), "rendered-p-b")
		b.aim("rendered-p-c")
		b.expect(prefix.DesiredConfig(), "rendered-p-b")
		apiserver.Add(b.server, b.set(b.deployment(), "newer", "rendered-p-c"))
		b.pass(time.Second)
		b.expect(prefix.DesiredConfig(), "rendered-p-c")
		b.expect(machinev1alpha1.AnnotationUpdateTo, "newer")

		b.report(map[string]string{prefix.State(): "degraded"})
		b.pass(stamp.FailAfter)
		b.expect(machinev1alpha1.LabelUpdateResult, machinev1alpha1.UpdateResultFailed)
		b.change(func(node *corev1.Node) { node.Status.Conditions[0].Reason = machinev1alpha1.NodeReasonUpdateFailed })
		b.roll(inPlace, true)
		b.aim("rendered-p-b")
		b.expect(prefix.DesiredConfig(), "rendered-p-c")
		b.roll(machinev1alpha1.RollingUpdateMachineDeploymentStrategyType, false)
		b.expect(prefix.DesiredConfig(), "rendered-p-c")
		b.roll(inPlace, false)
		b.expect(prefix.DesiredConfig(), "rendered-p-b")
		b.expect(machinev1alpha1.AnnotationUpdateTo, "new")
		b.report(map[string]string{prefix.CurrentConfig(): "rendered-p-b", prefix.State(): "done"})
		b.expect(machinev1alpha1.LabelUpdateResult, machinev1alpha1.UpdateResultSuccessful)
	})
}

// Another replica has assigned the next configuration in the meantime: how long the one before has
// failed does not count.
func TestNodeFailureOfAnotherConfigurationDoesNotCount(t *testing.T) {
	onBench(t, func(b *bench) {
		apiserver.Add(b.server, b.set(b.deployment(), "newer", "rendered-p-c"))
		b.ready()
		b.report(map[string]string{prefix.State(): "degraded"})
		b.pass(stamp.FailAfter * 3 / 4)
		b.report(map[string]string{machinev1alpha1.AnnotationUpdateTo: "newer", prefix.DesiredConfig(): "rendered-p-c"})
		b.pass(stamp.FailAfter / 2)
		b.expect(machinev1alpha1.LabelUpdateResult, "")
		b.pass(stamp.FailAfter / 2)
		b.expect(machinev1alpha1.LabelUpdateResult, machinev1alpha1.UpdateResultFailed)
	})
}

// What a client writes on a Node is not followed: a Node of another machine, and a set of another
// MachineDeployment.
func TestForeignNodeIsNotChanged(t *testing.T) {
	for name, change := range map[string]func(node *corev1.Node){
		"of another machine":        func(node *corev1.Node) { node.Annotations[machinev1alpha1.AnnotationMachine] = "n/other/uid" },
		"to a set that is unknown":  func(node *corev1.Node) { node.Annotations[machinev1alpha1.AnnotationUpdateTo] = "none" },
		"to a set of another owner": func(node *corev1.Node) { node.Annotations[machinev1alpha1.AnnotationUpdateTo] = "foreign" },
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				foreign := b.set(&machinev1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "e", UID: "uid-e"}}, "foreign", "rendered-p-b")
				apiserver.Add(b.server, foreign)
				b.change(change)
				b.ready()
				b.pass(time.Hour)
				if got := len(b.written()); got != 0 {
					t.Errorf("%q", b.written())
				}
			})
		})
	}
}
