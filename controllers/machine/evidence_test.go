package machine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/cloud"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/cloud/breaker"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// A machine whose Node is unreachable shows what the cloud reports of its VM, which it asks for
// once, or again if there was no answer. No answer changes when the machine fails.
func TestEvidenceOfUnreachableNodeIsShown(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*bench)
		want   string
	}{
		"the VM is stopped": {func(b *bench) {
			b.cloud.Change(func(all []*fakecloud.Resource) { all[0].State = "stopped" })
		}, `the cloud reported the state of its VM as "stopped" at `},
		"the VM is gone": {func(b *bench) {
			b.cloud.Change(func(all []*fakecloud.Resource) { all[0].Ends = time.Now() })
		}, "the cloud had no VM of this machine at "},
		"the cloud is away": {func(b *bench) {
			b.cloud.Fail(fakecloud.Fault{Code: driver.Unavailable}, driver.OpStatus)
		}, "did not report whether it has its VM (Unavailable) at "},
		"the cloud hangs": {func(b *bench) {
			b.cloud.Fail(fakecloud.Fault{Hangs: true}, driver.OpStatus)
		}, "did not report whether it has its VM (DeadlineExceeded) at "},
		"the driver panics": {func(b *bench) { b.panics() }, "did not report whether it has its VM (Internal) at "},
		"the circuit breaker is open": {func(b *bench) {
			p, err := b.process.observer.observe(b.get())
			b.must(err)
			b.must(b.process.classes.readSecrets(b.Context(), p))
			call := cloud.Call{Op: driver.OpStatus, SecretVersions: p.world.Secret.Versions, Target: driver.Target{Class: p.world.Class.Class}}
			for i := range breaker.Failures {
				call.Target.Machine = p.world.Machine.DeepCopy()
				call.Target.Machine.UID = types.UID(fmt.Sprint("other-", i))
				_, err := b.process.cloud.Do(b.Context(), call, func(context.Context, driver.Target) error {
					return driver.Errorf(driver.OpStatus, driver.Unauthenticated, "expired")
				})
				b.must(err)
			}
		}, "; the cloud had its VM at 2000-01-01T00:00:08Z"}, // when the account works
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
				if last := b.get().Status.LastOperation; !strings.Contains(last.Description, tc.want) {
					t.Errorf("want a description with %q, got %q", tc.want, last.Description)
				}
				b.becomes(v1alpha1.MachineFailed, b.limits.HealthTimeout)
				most := 1
				if strings.Contains(tc.want, "did not report") {
					most = 2 // and again before the machine fails
				}
				if calls := len(b.cloud.Calls(driver.OpStatus)) - before; calls > most {
					t.Errorf("the cloud was asked %d times, want %d", calls, most)
				}
			})
		})
	}
}
