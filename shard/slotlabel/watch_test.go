package slotlabel

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// The target cluster may be away for long: that delays no root.
func TestWatchOfOneNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := meta(policy.Machine, "other", "", "")
		other.Namespace = "other"
		control := apiserver.Recording(meta(policy.Set, "root", "", ""), meta(policy.Machine, "child", "", "root"), other)
		target, back := apiserver.Recording(meta(policy.Node, "node", "", "")), make(chan struct{})
		target.Fault(func(apiserver.Request) error {
			<-back
			return nil
		})
		w, err := NewWatch(control.Metadata(), target.Metadata(), "n", 4)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		known, started := false, false
		go func() {
			if err := w.Start(ctx, func() { known = true }); err != nil {
				t.Error(err)
			}
			started = true
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		if !known || started || !w.knowsTrees() {
			t.Errorf("without Nodes: known %t, want true, started %t, want false", known, started)
		}
		close(back)
		time.Sleep(time.Second)
		synctest.Wait()
		if !started || !w.Has(policy.Node, types.NamespacedName{Name: "node"}) || w.Count(policy.Machine) != 1 {
			t.Errorf("with Nodes: started %t, %d Nodes and %d machines", started, w.Count(policy.Node), w.Count(policy.Machine))
		}
		want := corev1.ObjectReference{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "MachineSet", Namespace: "n", Name: "root", UID: "root",
		}
		if roots := w.Roots("n"); !slices.Equal(roots, []corev1.ObjectReference{want}) {
			t.Errorf("roots: %v, want %v", roots, want)
		}
		stop()
		synctest.Wait()
		if err := w.OnChange(func(policy.Object, bool) {}); err == nil {
			t.Error("a handler is added to a Watch that has ended")
		}
	})
}

func TestWatchThatEndsBeforeNodesAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := apiserver.Recording()
		target.Away(true)
		w, err := NewWatch(apiserver.Recording().Metadata(), target.Metadata(), "", 4)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := w.Start(ctx, func() {}); err == nil {
			t.Error("no error")
		}
	})
}

func TestResource(t *testing.T) {
	for kind, want := range map[policy.Kind]string{
		policy.Node: "/v1, Resource=nodes", policy.Set: "machine.sapcloud.io/v1alpha1, Resource=machinesets",
	} {
		if got := resource(kind).String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestEssentialOfATombstone(t *testing.T) {
	tombstone := cache.DeletedFinalStateUnknown{Key: "n/m"}
	if got, err := essential(tombstone); got != tombstone || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}
