package render

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/render/merge"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/bubbles"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/configtest"
)

func TestMain(m *testing.M) { bubbles.Main(m) }

// bench is a Bench with the controller.
type bench struct {
	*configtest.Bench
	*Controller

	view  *objectcache.View
	nodes *objectcache.Nodes
}

func run(t *testing.T, test func(b *bench)) { runOf(t, "", test) }

// runOf is run in the target cluster of a namespace.
func runOf(t *testing.T, namespace string, test func(b *bench)) {
	configtest.RunOf(t, namespace, func(inner *configtest.Bench) {
		b := &bench{Bench: inner, view: objectcache.NewView(), nodes: objectcache.New[*corev1.Node]()}
		var err error
		b.Controller, err = New(Config{
			Client: b.Configs, Target: b.Metadata, Machines: b.Machines, Control: b.Metadata,
			Cache: b.Cache, View: b.view, Nodes: b.nodes, Written: patch.NewLatest[*v1alpha1.MachineConfigPool](), Prefix: v1alpha1.DaemonPrefix,
			Replaces: func(*v1alpha1.MachineConfigPool) bool { return false },
			Events:   b.Recorder, Deletions: deletion.NewRecorder(clock.RealClock{}, nil, nil), Clock: clock.RealClock{}, Workers: 2,
		})
		if err != nil {
			t.Fatal(err)
		}
		test(b)
	})
}

func config(name, role, spec string) string {
	return fmt.Sprintf(
		`{apiVersion: fleet.machine.sapcloud.io/v1alpha1, kind: MachineConfig, metadata: {name: %s, labels: {role: %s}}, spec: %s}`,
		name, role, spec,
	)
}

func pool(name string) string {
	return fmt.Sprintf(`{apiVersion: fleet.machine.sapcloud.io/v1alpha1, kind: MachineConfigPool, metadata: {name: %s},
spec: {machineConfigSelector: {matchLabels: {role: %s}}, nodeSelector: {matchLabels: {role: %s}}}}`, name, name, name)
}

// started is a pool that was rendered.
func (b *bench) started() (target string) {
	b.Helper()
	b.Put("machineconfigs", config("00-a", "p", `{kernelArguments: [a]}`))
	b.Put("machineconfigpools", pool("p"))
	b.Start(b.Controller)
	b.After(merge.Settle)
	target = b.Pool("p").Status.CurrentMachineConfig
	if target == "" {
		b.Fatal("nothing was rendered")
	}
	b.Writes()
	b.Recorder.Take()
	return target
}

func (b *bench) degraded() *metav1.Condition {
	b.Helper()
	p := b.Pool("p")
	return meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PoolRenderDegraded)
}

func (b *bench) expectWrites(want ...string) {
	b.Helper()
	if got := b.Writes(); !slices.Equal(got, want) {
		b.Errorf("writes %q, want %q", got, want)
	}
}

// A pool is rendered once for changes that belong together, and the object exists before the status
// names it.
func TestPoolIsRenderedAfterChangesHaveSettled(t *testing.T) {
	run(t, func(b *bench) {
		b.Put("machineconfigpools", pool("p"))
		b.Start(b.Controller)
		for i := range 3 {
			b.After(merge.Settle - time.Second)
			b.Put("machineconfigs", config(fmt.Sprintf("0%d-a", i), "p", `{kernelArguments: [a]}`))
		}
		b.expectWrites()
		b.After(merge.Settle)
		p := b.Pool("p")
		if !slices.Equal(p.Status.Sources, []string{"00-a", "01-a", "02-a"}) || !slices.Contains(p.Finalizers, v1alpha1.FinalizerInUse) {
			b.Errorf("sources %v, finalizers %v", p.Status.Sources, p.Finalizers)
		}
		r, exists := configtest.Read[v1alpha1.RenderedMachineConfig](b.Bench, "renderedmachineconfigs", p.Status.CurrentMachineConfig)
		if !exists || !r.Verify() || !slices.Contains(r.Finalizers, v1alpha1.FinalizerInUse) {
			b.Errorf("RenderedMachineConfig exists: %t, %+v", exists, r.ObjectMeta)
		}
		b.expectWrites("POST renderedmachineconfigs", "PATCH machineconfigpools/p", "PATCH machineconfigpools/p/status")
		if c := b.degraded(); c == nil || c.Status != metav1.ConditionFalse {
			b.Errorf("RenderDegraded: %+v", c)
		}
		if said := b.Recorder.Take(); len(said) != 1 || !strings.HasPrefix(said[0], "Rendered: Rendered rendered-p-") {
			b.Errorf("Events %q", said)
		}
		b.After(time.Hour)
		b.expectWrites()
	})
}

// Labels select: one that is removed is a change for the pool that has selected it.
func TestLabelChangesAreNoticed(t *testing.T) {
	run(t, func(b *bench) {
		first := b.started()
		b.Put("machineconfigs", config("01-b", "q", `{kernelArguments: [b]}`))
		b.After(merge.Settle)
		b.expectWrites()
		relabel := func(role string) {
			b.Edit("machineconfigs", "01-b", func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"role": role}) })
			b.After(merge.Settle)
		}
		relabel("p")
		if p := b.Pool("p"); !slices.Equal(p.Status.Sources, []string{"00-a", "01-b"}) || p.Status.CurrentMachineConfig == first {
			b.Errorf("after the label was added: %+v", p.Status)
		}
		b.Writes()
		relabel("q")
		if p := b.Pool("p"); p.Status.CurrentMachineConfig != first || len(p.Status.AbandonedMachineConfigs) != 1 {
			b.Errorf("after the label was removed: %+v, want %s again", p.Status, first)
		}
		b.expectWrites("PATCH machineconfigpools/p/status") // the object of the first target is used again
	})
}

func TestPausedPoolIsNotRendered(t *testing.T) {
	run(t, func(b *bench) {
		first := b.started()
		pause := func(paused bool) {
			b.Edit("machineconfigpools", "p", func(u *unstructured.Unstructured) {
				if err := unstructured.SetNestedField(u.Object, paused, "spec", "paused"); err != nil {
					b.Fatal(err)
				}
				u.SetGeneration(u.GetGeneration() + 1)
			})
		}
		pause(true)
		b.Put("machineconfigs", config("00-a", "p", `{kernelArguments: [z]}`))
		b.After(time.Hour)
		b.expectWrites()
		pause(false)
		b.After(merge.Settle)
		if b.Pool("p").Status.CurrentMachineConfig == first {
			b.Error("the pool was not rendered after the pause")
		}
	})
}

// A bad MachineConfig is named, the target stays, and the correction ends it.
func TestCulpritIsNamed(t *testing.T) {
	run(t, func(b *bench) {
		first := b.started()
		b.Put("machineconfigs", config("50-bad", "p", `{kernelType: fast}`))
		b.After(merge.Settle)
		c := b.degraded()
		if c.Status != metav1.ConditionTrue || c.Reason != merge.ReasonInvalidMachineConfig || !strings.Contains(c.Message, "50-bad") {
			b.Errorf("RenderDegraded %+v", c)
		}
		if said := b.Recorder.Take(); len(said) != 1 || !strings.HasPrefix(said[0], "RenderFailed: MachineConfig 50-bad") {
			b.Errorf("Events %q", said)
		}
		b.expectWrites("PATCH machineconfigpools/p/status")
		b.Server.Delete("machineconfigs", "", "50-bad")
		b.After(merge.Settle)
		if p := b.Pool("p"); p.Status.CurrentMachineConfig != first || b.degraded().Status != metav1.ConditionFalse {
			b.Errorf("after the correction: %+v", p.Status)
		}
	})
}

// The status could not be written after the object was created: the next pass, or the next owner,
// writes it without another object.
func TestInterruptedPassIsContinued(t *testing.T) {
	for name, passed := range map[string]string{"before the finalizer": "POST", "before the status": "PATCH machineconfigpools/p"} {
		t.Run(name, func(t *testing.T) {
			run(t, func(b *bench) {
				b.Put("machineconfigs", config("00-a", "p", `{kernelArguments: [a]}`))
				b.Put("machineconfigpools", pool("p"))
				b.Fail(func(write string) bool {
					return strings.HasPrefix(write, "PATCH") && (passed == "POST" || strings.HasSuffix(write, "/status"))
				})
				b.Start(b.Controller)
				b.After(merge.Settle)
				if len(b.Names("renderedmachineconfigs")) != 1 || b.Pool("p").Status.CurrentMachineConfig != "" {
					b.Fatal("the pass was not interrupted where it should be")
				}
				b.Fail(nil)
				b.After(time.Minute)
				names := b.Names("renderedmachineconfigs")
				if len(names) != 1 || b.Pool("p").Status.CurrentMachineConfig != names[0] {
					b.Errorf("RenderedMachineConfigs %v, target %q", names, b.Pool("p").Status.CurrentMachineConfig)
				}
			})
		})
	}
}

// Another program has created an object with the name of a result.
func TestForeignContentIsNotATarget(t *testing.T) {
	run(t, func(b *bench) {
		first := b.started()
		b.Put("machineconfigs", config("00-a", "p", `{kernelArguments: [b]}`))
		b.After(merge.Settle)
		second := b.Pool("p").Status.CurrentMachineConfig
		b.Server.Remove("renderedmachineconfigs", "", first)
		b.Put("renderedmachineconfigs", fmt.Sprintf(`{apiVersion: fleet.machine.sapcloud.io/v1alpha1, kind: RenderedMachineConfig,
metadata: {name: %s, labels: {fleet.machine.sapcloud.io/pool: p}}, spec: {fips: true}}`, first))
		b.Put("machineconfigs", config("00-a", "p", `{kernelArguments: [a]}`))
		b.After(merge.Settle)
		if c := b.degraded(); c.Reason != merge.ReasonNameTaken || b.Pool("p").Status.CurrentMachineConfig != second {
			b.Errorf("%+v", c)
		}
	})
}

// The same while the watch was interrupted: the object of a result was deleted, and another program
// has created one of its name.
func TestForeignContentInThePlaceOfATargetIsNoticed(t *testing.T) {
	run(t, func(b *bench) {
		first := b.started()
		b.Replace("renderedmachineconfigs", fmt.Sprintf(`{apiVersion: fleet.machine.sapcloud.io/v1alpha1, kind: RenderedMachineConfig,
metadata: {name: %s, labels: {fleet.machine.sapcloud.io/pool: p}}, spec: {fips: true}}`, first))
		if c := b.degraded(); c.Reason != merge.ReasonNameTaken {
			b.Errorf("%+v", c)
		}
	})
}

// rolled renders n more targets, an hour apart.
func (b *bench) rolled(n int) (targets []string) {
	for i := range n {
		b.Put("machineconfigs", config("00-a", "p", fmt.Sprintf(`{kernelArguments: [n%d]}`, i)))
		b.After(time.Hour)
		targets = append(targets, b.Pool("p").Status.CurrentMachineConfig)
	}
	return targets
}

func (b *bench) completes() {
	b.Edit("machineconfigpools", "p", func(u *unstructured.Unstructured) {
		target, _, _ := unstructured.NestedString(u.Object, "status", "currentMachineConfig")
		if err := unstructured.SetNestedField(u.Object, target, "status", "completedMachineConfig"); err != nil {
			b.Fatal(err)
		}
	})
}

func node(name, desired string) string {
	return fmt.Sprintf(
		`{apiVersion: v1, kind: Node, metadata: {name: %s, annotations: {machine-config-daemon.v1.openshift.com/desiredConfig: %q}}}`,
		name, desired,
	)
}

// Of old results those are deleted that nothing names, when the pool is complete and they are a day
// old; what is named stays.
func TestGarbageIsCollected(t *testing.T) {
	run(t, func(b *bench) {
		first := b.started()
		targets := append([]string{first}, b.rolled(9)...)
		b.Put("nodes", node("n1", targets[0]))
		b.Put("machines", fmt.Sprintf(
			`{apiVersion: machine.sapcloud.io/v1alpha1, kind: Machine, metadata: {name: m, namespace: x, annotations: {fleet.machine.sapcloud.io/machine-config: %s}}}`, targets[1],
		))
		b.Put("machinedeployments", fmt.Sprintf(
			`{apiVersion: machine.sapcloud.io/v1alpha1, kind: MachineDeployment, metadata: {name: d, namespace: x}, spec: {template: {metadata: {annotations: {fleet.machine.sapcloud.io/machine-config: %s}}}}}`, targets[2],
		))
		b.After(2 * merge.MinAge)
		if n := len(b.Names("renderedmachineconfigs")); n != 10 {
			b.Errorf("%d RenderedMachineConfigs while the pool is updating, want all 10", n)
		}
		b.completes()
		b.After(2 * sweepEvery)
		want := slices.Sorted(slices.Values(slices.Concat(targets[:3], targets[5:]))) // three are named, five are kept
		if got := b.Names("renderedmachineconfigs"); !slices.Equal(got, want) {
			b.Errorf("there are %v, want %v", got, want)
		}
		deletions := 0
		for _, said := range b.Recorder.Take() {
			if strings.HasPrefix(said, "Deleting: ") && strings.Contains(said, "Superseded") {
				deletions++
			}
		}
		if deletions != 2 {
			b.Errorf("%d receipts of 2 deletions", deletions)
		}
	})
}
