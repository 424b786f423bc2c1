package machine

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/targettest"
)

// The Node of another VM has the machine's name, so that its VM cannot join. The machine reports
// that and leaves the Node alone. It continues when a user deletes the Node.
func TestNodeOfAnotherVMHasTheName(t *testing.T) {
	for name, then := range map[string]func(b *bench, vm *fakecloud.Resource){
		"the Node is deleted": func(b *bench, vm *fakecloud.Resource) {
			b.deletes("m")
			b.becomes(v1alpha1.MachinePending, 5*time.Second) // the pause after the first failure
			b.boots(vm)
			b.becomes(v1alpha1.MachineRunning, bootTime+time.Second)
		},
		"the machine is deleted": func(b *bench, _ *fakecloud.Resource) {
			b.delete()
			b.pass(time.Minute)
			node := b.node()
			if now, _ := b.cloud.VMs(); b.get() != nil || now > 0 || node.UID != "other" ||
				len(node.Finalizers)+len(node.Labels)+len(node.Annotations) > 0 {
				b.Errorf("%d VMs and the machine %v are left, and the Node is %+v", now, b.get(), node.ObjectMeta)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				var created *fakecloud.Resource
				b.cloud.Created = func(vm *fakecloud.Resource) { created = vm }
				b.setNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "other"}, Spec: corev1.NodeSpec{ProviderID: "test:///other"}})
				b.create()
				b.becomes(v1alpha1.MachineCrashLoopBackOff, time.Second)
				if got, want := b.operation(), `Node "m" belongs to another VM`; !strings.Contains(got, want) {
					t.Errorf("the machine reports %q, want %s", got, want)
				}
				then(b, created)
			})
		})
	}
}

// A user has a running machine name another Node. Its own counts, which is bound to it and has its
// VM, and the machine names that again. Deleted at once, the own Node is drained, and others are
// left alone.
func TestMachineNamesAnotherNodeThanItsOwn(t *testing.T) {
	for name, others := range map[string][]string{
		"that does not exist": nil,
		"of another VM":       {"other"},
		"of another VM, as others that are bound to the machine": {"other", "o1", "o2", "o3", "o4", "o5", "o6", "o7", "o8", "o9"},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				m := b.create()
				b.becomes(v1alpha1.MachineRunning, bootTime+time.Second)
				var left []string
				for i, name := range others {
					node := &corev1.Node{
						ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: corev1.NodeSpec{ProviderID: "test:///" + name},
					}
					if i > 0 {
						node.Annotations = map[string]string{v1alpha1.AnnotationMachine: v1alpha1.RefOf(m).String()}
					}
					b.setNode(node)
					left = append(left, "Node "+name)
				}
				apiserver.Add(b.target, targettest.PodOn("m", "web", "ReplicaSet"))
				misname := func() {
					apiserver.Change(b.server, "machines", "n", "m", func(m *v1alpha1.Machine) { m.Labels[v1alpha1.LabelNode] = "other" })
				}
				misname()
				b.pass(0)
				if m := b.get(); lifecycle.NodeName(m) != "m" || m.Status.CurrentStatus.Phase != v1alpha1.MachineRunning {
					t.Errorf("the machine names Node %q and is %s", lifecycle.NodeName(m), m.Status.CurrentStatus.Phase)
				}
				misname()
				b.delete()
				b.pass(time.Hour)
				if b.get() != nil || b.evicted["web"] == 0 {
					t.Errorf("the pod was evicted %d times, and the machine is %+v", b.evicted["web"], b.get())
				}
				if got := slices.Sorted(slices.Values(b.left())); !slices.Equal(got, slices.Sorted(slices.Values(left))) {
					t.Errorf("the target cluster has %q, want %q", got, left)
				}
			})
		})
	}
}
