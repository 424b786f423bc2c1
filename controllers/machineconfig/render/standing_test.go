package render

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/render/merge"
)

// poolOf refers to a MachineDeployment.
func poolOf(namespace string) string {
	return fmt.Sprintf(`{apiVersion: fleet.machine.sapcloud.io/v1alpha1, kind: MachineConfigPool, metadata: {name: p},
spec: {machineConfigSelector: {matchLabels: {role: p}}, machineRef: {kind: MachineDeployment, namespace: %s, name: d}}}`, namespace)
}

func TestPoolWithoutMachinesIsClaimed(t *testing.T) {
	runOf(t, "a", func(b *bench) {
		b.started()
		if got := b.Pool("p").Annotations[v1alpha1.AnnotationNamespace]; got != "a" {
			t.Errorf("it is for namespace %q", got)
		}
	})
}

// A pool that is for another namespace gets nothing, and a condition if that namespace does not
// report on this version of it within a minute. A pool that is paused, or is being deleted, is left
// alone.
func TestPoolOfAnotherNamespaceIsRefused(t *testing.T) {
	runOf(t, "a", func(b *bench) {
		b.Put("machineconfigs", config("00-a", "p", `{kernelArguments: [a]}`))
		b.Put("machineconfigpools", poolOf("b"))
		b.Start(b.Controller)
		b.After(otherNamespaceAfter - time.Second)
		b.expectWrites()
		b.After(2 * time.Second)
		refused := b.degraded()
		if refused == nil || refused.Reason != reasonOtherNamespace || !strings.Contains(refused.Message, "spec.machineRef.namespace must be a") {
			t.Fatalf("the condition is %+v", refused)
		}
		if said := b.Recorder.Take(); len(said) != 1 || !strings.HasPrefix(said[0], "RenderFailed") {
			t.Errorf("Events: %q", said)
		}
		b.After(time.Hour)
		if writes := b.Writes(); len(writes) != 1 {
			t.Errorf("writes %q, want the condition only", writes)
		}
		b.Put("machineconfigpools", poolOf("a"))
		b.After(merge.MaxSettle)
		if is := b.degraded(); b.Pool("p").Status.CurrentMachineConfig == "" || is.Reason != merge.ReasonRendered {
			t.Errorf("the pool of the own namespace has the condition %+v", is)
		}
	})
}

// Another namespace has the same cluster, and reports on the pool.
func TestPoolThatAnotherNamespaceServesIsLeftAlone(t *testing.T) {
	runOf(t, "a", func(b *bench) {
		b.Put("machineconfigpools", poolOf("b"))
		b.Start(b.Controller)
		b.Server.Edit("machineconfigpools", "", "p", func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedSlice(u.Object, []any{map[string]any{
				"type": v1alpha1.PoolRenderDegraded, "status": "False", "reason": merge.ReasonRendered, "observedGeneration": u.GetGeneration() + 1,
			}}, "status", "conditions") // it is an object
		})
		b.After(time.Hour)
		b.expectWrites()
	})
}

// Many pools that are being deleted in the cluster of a namespace cause a bounded number of lists
// of all Nodes, and of Machines in the control cluster.
func TestListsForANamespaceAreLimited(t *testing.T) {
	runOf(t, "a", func(b *bench) {
		name := func(i int) string { return fmt.Sprint("p", i) }
		for i := range 100 {
			b.Put("machineconfigpools", strings.Replace(pool(name(i)), "name: "+name(i), fmt.Sprintf(
				"name: %s, finalizers: [%s], annotations: {%s: a}", name(i), v1alpha1.FinalizerInUse, v1alpha1.AnnotationNamespace), 1))
			b.Server.Delete("machineconfigpools", "", name(i))
		}
		b.Start(b.Controller)
		b.After(time.Minute)
		if n, most := b.Reads("nodes"), listBurst+int(time.Minute/listInterval)+1; n == 0 || n > most {
			t.Errorf("%d lists of Nodes, want at most %d", n, most)
		}
		b.After(10 * time.Minute)
		left := slices.ContainsFunc(b.Cache.Pools(), func(p *v1alpha1.MachineConfigPool) bool { return p.DeletionTimestamp != nil })
		if left {
			t.Error("pools are left")
		}
	})
}
