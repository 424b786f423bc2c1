package machine

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// patchSecret changes the class' Secret, as a user.
func (b *bench) patchSecret(patch string) {
	b.Helper()
	b.server.Merge("secrets", "n", "s", patch)
}

// asked counts the requests of a kind for Secrets since the last call.
func (b *bench) asked(verb string) (n int) {
	for _, r := range b.server.Requests() {
		if r.Verb == verb && r.Resource == "secrets" && !r.IsMetadata() {
			n++
		}
	}
	b.server.Forget()
	return n
}

// TestOtherCredentialsAreTriedAtOnce corrects refused credentials, while a process runs and while
// none does.
func TestOtherCredentialsAreTriedAtOnce(t *testing.T) {
	for _, op := range []driver.Op{driver.OpCreate, driver.OpDelete} {
		for name, attended := range map[string]bool{"while the process lives": true, "between two processes": false} {
			t.Run(fmt.Sprintf("%s %s", op, name), func(t *testing.T) {
				onBench(t, func(b *bench) {
					b.create(withoutDeadline)
					if op == driver.OpDelete {
						b.becomes(v1alpha1.MachineRunning, time.Minute)
						b.cloud.Fail(fakecloud.Fault{Code: driver.Unauthenticated}, op)
						b.delete()
					} else {
						b.cloud.Fail(fakecloud.Fault{Code: driver.Unauthenticated, RetryAfter: 50 * time.Minute}, op)
					}
					b.pass(10 * time.Minute) // the next attempt is due after some minutes
					tried := len(b.cloud.Calls(op))
					b.takeOver(0)
					b.pass(time.Second)
					if got := len(b.cloud.Calls(op)); got != tried || tried == 0 {
						t.Errorf("nothing has changed, and the cloud got %d requests, %d before", got, tried)
					}
					b.cloud.Work()
					if !attended {
						b.end()
					}
					b.patchSecret(`{"data":{"password":"bmV3"}}`)
					if !attended {
						b.start()
					}
					if op == driver.OpCreate {
						b.becomes(v1alpha1.MachineRunning, bootTime)
						return
					}
					b.pass(time.Second)
					if b.get() != nil {
						t.Errorf("left: %+v", b.get().Status)
					}
				})
			})
		}
	}
}

// A Secret's labels and finalizers are not sent to the cloud.
func TestOtherMetadataOfASecretEndsNoWait(t *testing.T) {
	onBench(t, func(b *bench) {
		b.cloud.Fail(fakecloud.Fault{Code: driver.ResourceExhausted}, driver.OpCreate)
		b.create(withoutDeadline)
		b.pass(time.Minute)
		b.patchSecret(`{"metadata":{"labels":{"a":"b"},"finalizers":["x","machine.sapcloud.io/machine-controller"]}}`)
		b.pass(time.Minute)
		b.takeOver(0) // the next process reads the same data
		b.pass(time.Minute)
		if got := len(b.cloud.Calls(driver.OpCreate)); got != 1 {
			t.Errorf("the cloud got %d requests within 3 min, want 1", got)
		}
	})
}

// Many machines wait for one Secret: it is read once by all of them, and then watched, as long as
// they wait.
func TestAMissingSecretIsAwaited(t *testing.T) {
	const machines = 20
	onBench(t, func(b *bench) {
		there := apiserver.Read[corev1.Secret](b.server, "secrets", "n", "s")
		b.server.Remove("secrets", "n", "s")
		b.asked("")
		for i := range machines {
			b.create(withoutDeadline, func(m *v1alpha1.Machine) { m.Name = fmt.Sprint("m", i) })
		}
		b.pass(time.Second)
		if got := b.process.classes.secrets.Awaited(); got != 1 {
			t.Errorf("%d watches, want one", got)
		}
		if got := b.asked("get"); got != 1 {
			t.Errorf("the missing Secret was read %d times, want once", got)
		}
		b.pass(time.Hour)
		if got := b.asked("get"); got > 0 {
			t.Errorf("the missing Secret was read %d times more within an hour", got)
		}
		b.createSecret(there)
		b.pass(bootTime)
		for i := range machines {
			m := apiserver.Read[v1alpha1.Machine](b.server, "machines", "n", fmt.Sprint("m", i))
			if m.Status.CurrentStatus.Phase != v1alpha1.MachineRunning {
				t.Errorf("%s: %+v", m.Name, m.Status)
			}
		}
		if got := b.asked("get"); got > 2 {
			t.Errorf("the Secret was read %d times by all of them", got)
		}
		if got := b.process.classes.secrets.Awaited(); got > 0 {
			t.Errorf("%d watches without a waiting machine", got)
		}
		b.server.Remove("secrets", "n", "s")
		b.pass(time.Minute) // no process remembers it
		b.server.Delete("machines", "n", "m0")
		b.pass(time.Hour)
		if m := apiserver.Read[v1alpha1.Machine](b.server, "machines", "n", "m0"); m == nil ||
			m.Status.LastOperation.ErrorCode != driver.NotFound.String() {
			t.Errorf("a VM cannot be deleted without its Secret, and the machine is %+v", m)
		}
		b.createSecret(there)
		b.pass(time.Second)
		if left := b.server.Get("machines", "n", "m0"); left != nil {
			t.Errorf("left: %+v", left)
		}
	})
}

func (b *bench) createSecret(s *corev1.Secret) {
	b.Helper()
	apiserver.Add(b.server, s)
}

// A machine that was deleted, or is held by another replica, waits for nothing.
func TestNothingIsWatchedForAMachineThatIsGone(t *testing.T) {
	onBench(t, func(b *bench) {
		b.cloud.Fail(fakecloud.Fault{Code: driver.Unauthenticated}, driver.OpStatus)
		b.create(withoutDeadline)
		b.pass(time.Second)
		if got := b.process.classes.secrets.Awaited(); got != 1 {
			t.Errorf("%d watches while it waits, want one", got)
		}
		late, err := b.process.observer.observe(b.get())
		b.must(err)
		b.must(b.process.classes.readSecrets(b.Context(), late))
		b.process.cfg.View.Machines.Remove(types.NamespacedName{Namespace: "n", Name: "m"}, "")
		if got := b.process.classes.secrets.Awaited(); got > 0 {
			t.Errorf("%d watches after the deletion of the machine", got)
		}
		b.process.classes.awaitSecrets(late, lifecycle.Verdict{Do: lifecycle.Rest}) // a pass that had begun before that
		if got := b.process.classes.secrets.Awaited(); got > 0 {
			t.Errorf("%d watches after a late pass", got)
		}
	})
}

// A namespace whose machines wait for many Secrets has some of them watched; its other machines
// look now and then.
func TestManyMissingSecretsAreAwaited(t *testing.T) {
	const machines = 60
	onBench(t, func(b *bench) {
		for i := range machines {
			name := fmt.Sprint("x", i)
			apiserver.Add(b.server, &v1alpha1.MachineClass{
				ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}, Provider: testProvider, SecretRef: &corev1.SecretReference{Name: name},
			})
			b.create(withoutDeadline, func(m *v1alpha1.Machine) { m.Name, m.Spec.Class.Name = name, name })
		}
		b.pass(10 * time.Minute)
		if got := b.process.classes.secrets.Awaited(); got >= machines {
			t.Errorf("%d watches of the Secrets of one namespace", got)
		}
		b.asked("")
		b.pass(time.Hour)
		if got := b.asked("get"); got == 0 || got > 10*20 {
			t.Errorf("10 Secrets that are not watched were read %d times within an hour", got)
		}
		for i := range machines {
			b.createSecret(&corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: fmt.Sprint("x", i)},
				Data:       map[string][]byte{v1alpha1.SecretKeyUserData: []byte("boot")},
			})
		}
		b.pass(20*time.Minute + bootTime)
		for i := range machines {
			m := apiserver.Read[v1alpha1.Machine](b.server, "machines", "n", fmt.Sprint("x", i))
			if m.Spec.ProviderID == "" {
				t.Errorf("%s: %+v", m.Name, m.Status)
			}
		}
	})
}
