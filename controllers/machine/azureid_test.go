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

// The provider IDs of a VM of Azure: that of Machine Controller Manager, and that of the cloud.
const (
	idOfMCM   = "azure:///westeurope/m"
	idOfAzure = "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/m"
)

// TestARunningMachineOfMachineControllerManagerAtAzure: its Node has another form of the provider
// ID. It is taken over without a change of the machine's, with which Machine Controller Manager
// finds its VM again, and no other machine gets the Node.
func TestARunningMachineOfMachineControllerManagerAtAzure(t *testing.T) {
	for name, tc := range map[string]struct {
		cloud, label string
		older        string // the provider ID of an older machine of that name in another namespace; "" for none
		own          bool
	}{
		"its Node":                          {cloud: idOfAzure, own: true},
		"its Node, with the machine's name": {cloud: idOfAzure, label: "m", own: true},
		"the class leads to another VM": {
			cloud: "azure:///subscriptions/s/resourceGroups/attacker/providers/Microsoft.Compute/virtualMachines/m",
		},
		"an older machine has it":                {cloud: idOfAzure, older: idOfMCM},
		"an older machine has it, by another ID": {cloud: idOfAzure, older: idOfAzure},
		"an older machine has its name":          {cloud: idOfAzure, label: "m", older: "azure:///elsewhere/m"},
		"an older machine has another VM":        {cloud: idOfAzure, older: "azure:///westeurope/n", own: true},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				vm := fakecloud.Resource{OtherID: idOfMCM, Ready: true}
				vm.Resource = driver.Resource{Kind: driver.ResourceVM, ID: tc.cloud, Machine: "m", NodeName: "m"}
				b.cloud.Add(vm)
				if tc.older != "" {
					b.runsOn("a", "m", tc.older)
				}
				m := b.runsOn("n", "m", idOfMCM)
				labels := map[string]string{}
				if tc.label != "" {
					labels[v1alpha1.LabelMachineName] = tc.label
				}
				b.setNode(&corev1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "node", Labels: labels}, Spec: corev1.NodeSpec{ProviderID: idOfAzure},
					Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
				})
				b.pass(time.Hour)
				ref, isTouched := b.boundTo()
				if owns := ref == v1alpha1.RefOf(m); owns != tc.own || isTouched {
					t.Errorf("the Node is bound to %q, touched: %t; want the machine's: %t", ref, isTouched, tc.own)
				}
				is := b.get()
				if tc.own && (is.Status.CurrentStatus.Phase != v1alpha1.MachineRunning || is.Spec.ProviderID != idOfMCM) {
					t.Errorf("the machine is %s with %s: %s", is.Status.CurrentStatus.Phase, is.Spec.ProviderID, b.operation())
				}
			})
		})
	}
}
