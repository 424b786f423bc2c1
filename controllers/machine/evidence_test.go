package machine

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// A machine whose Node is unreachable shows what the cloud reports of its VM, which it asks for once. No answer changes when the machine fails.
func TestEvidence_OfUnreachableNode_IsShown(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*bench)
		want   string
	}{
		"the VM is stopped": {func(b *bench) { b.cloud.Change(func(all []*fakecloud.Resource) { all[0].State = "stopped" }) }, `the state of its VM as "stopped"`},
		"the VM is gone": {func(b *bench) {
			b.cloud.Change(func(all []*fakecloud.Resource) { all[0].Ends = time.Now() })
		}, "the cloud has no VM of this machine"},
		"the cloud is away":   {func(b *bench) { b.cloud.Fail(fakecloud.Fault{Code: driver.Unavailable}, driver.OpStatus) }, "does not report whether it has its VM (Unavailable)"},
		"the cloud hangs":     {func(b *bench) { b.cloud.Fail(fakecloud.Fault{Hangs: true}, driver.OpStatus) }, "does not report whether it has its VM (DeadlineExceeded)"},
		"Secrets are refused": {func(b *bench) { refuses(b.server, "get secrets", forbidden("secrets")); b.takeOver(0) }, "(Ready is Unknown)"},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.runs()
				tc.change(b)
				before := len(b.cloud.Calls(driver.OpStatus))
				b.setReady(corev1.ConditionUnknown)
				b.becomes(v1alpha1.MachineUnknown, time.Second)
				b.pass(time.Minute)
				if last := b.get().Status.LastOperation; !strings.HasSuffix(last.Description, tc.want) {
					t.Errorf("want a description that ends with %q, got %q", tc.want, last.Description)
				}
				b.becomes(v1alpha1.MachineFailed, b.limits.HealthTimeout)
				if calls := len(b.cloud.Calls(driver.OpStatus)) - before; calls > 1 {
					t.Errorf("the cloud was asked %d times, want once", calls)
				}
			})
		})
	}
}
