package machine

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
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
