package machine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// A driver that cannot look for VMs proves nothing about a Node that joins. The process that has
// created the VM knows of which machine it is; what another one can go by is the machine's name on
// the Node, from its kubelet.
func TestANodeOfADriverThatCannotSearch(t *testing.T) {
	for name, tc := range map[string]struct{ takenOver, named, isClaimed bool }{
		"joins at the process that has created the VM":     {isClaimed: true},
		"joins at another process":                         {takenOver: true},
		"joins at another process with the machine's name": {takenOver: true, named: true, isClaimed: true},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.cloud.Twins = false
				b.cloud.Fail(fakecloud.Fault{Code: driver.Unimplemented}, driver.OpStatus)
				b.cloud.Created = func(vm *fakecloud.Resource) {
					node := &corev1.Node{
						ObjectMeta: metav1.ObjectMeta{Name: vm.NodeName, UID: "node"}, Spec: corev1.NodeSpec{ProviderID: vm.ID},
						Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
					}
					if tc.named {
						node.Labels = map[string]string{v1alpha1.LabelMachineName: "m"}
					}
					time.AfterFunc(bootTime, func() { b.setNode(node) })
				}
				m := b.create()
				b.becomes(v1alpha1.MachinePending, time.Second)
				if tc.takenOver {
					b.takeOver(time.Second)
				}
				b.pass(time.Minute)
				if ref, _ := b.boundTo(); (ref == v1alpha1.RefOf(m)) != tc.isClaimed {
					t.Errorf("the Node is bound to %s: %s", ref, b.operation())
				}
				if !tc.isClaimed {
					b.becomes(v1alpha1.MachineFailed, b.limits.CreationTimeout)
				}
				if _, ever := b.cloud.VMs(); ever != 1 {
					t.Errorf("the machine has got %d VMs", ever)
				}
				b.delete()
				b.pass(time.Hour)
				if now, _ := b.cloud.VMs(); b.get() != nil || now > 0 {
					t.Errorf("%d VMs are left; the machine reports: %s", now, b.operation())
				}
			})
		})
	}
}
