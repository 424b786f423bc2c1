package machine

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/targettest"
)

// grace is how long the pods of these tests take to end.
const grace = 30 * time.Second

// pod puts a pod on the machine's Node.
func (b *bench) pod(name string, change ...func(*corev1.Pod)) {
	b.Helper()
	p := targettest.PodOn("m", name, "")
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	for _, f := range change {
		f(p)
	}
	apiserver.Add(b.target, p)
}

// endless is a pod that never ends by itself.
func endless(p *corev1.Pod) { p.Annotations = map[string]string{"endless": ""} }

func labelled(app string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{"app": app} }
}

// evict is the eviction API: the pod is being deleted from then on, and ends after its grace.
func (b *bench) evict(_ context.Context, e *policyv1.Eviction) error {
	b.mu.Lock()
	refusal := b.refusal
	b.mu.Unlock()
	if refusal != nil {
		if err := refusal(e.Name); err != nil {
			return err
		}
	}
	if !apiserver.Change(b.target, "pods", e.Namespace, e.Name, func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Now()}, new(int64(grace.Seconds()))
	}) {
		return apierrors.NewNotFound(corev1.Resource("pods"), e.Name)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.evicted == nil {
		b.evicted = map[string]int{}
	}
	b.evicted[e.Name]++
	return nil
}

// evictions returns how often each pod was evicted.
func (b *bench) evictions() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.evicted)
}

// podChanged is the kubelet: a pod that is being deleted ends after its grace.
func (b *bench) podChanged(p *corev1.Pod, gone bool) {
	_, never := p.Annotations["endless"]
	switch {
	case gone && b.ends != nil:
		b.ends(p)
	case !gone && p.DeletionTimestamp != nil && !never:
		time.AfterFunc(grace, func() { b.target.Remove("pods", p.Namespace, p.Name) })
	}
}

// addBlockingBudget adds a budget that is misconfigured and blocks pods: it selects pods of the app
// "held".
func (b *bench) addBlockingBudget() {
	b.Helper()
	apiserver.Add(b.target, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "never", Namespace: "a"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "held"}}},
		Status:     policyv1.PodDisruptionBudgetStatus{CurrentHealthy: 1, DesiredHealthy: 1, ExpectedPods: 1},
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refusal = func(pod string) error {
		if pod == "web" {
			return apierrors.NewTooManyRequests("its budget does not allow it", 0)
		}
		return nil
	}
}

// drainTimeout gives the pods of a machine so much time.
func drainTimeout(d time.Duration) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachineDrainTimeout: &metav1.Duration{Duration: d}}
	}
}

// operation returns the description of the machine's last operation.
func (b *bench) operation() string {
	m := b.get()
	if m == nil {
		return "the machine is gone"
	}
	return fmt.Sprintf("%s: %s", m.Status.LastOperation.State, m.Status.LastOperation.Description)
}

// reportsSoon waits until the description of the last operation has the text.
func (b *bench) reportsSoon(text string) {
	b.Helper()
	for range 20 {
		if b.pass(time.Second); strings.Contains(b.operation(), text) {
			return
		}
	}
	b.Errorf("the machine reports %q, want %q", b.operation(), text)
}

// deletedAt returns when the VM was deleted, counted from a time.
func (b *bench) deletedAt(from time.Time) time.Duration {
	b.Helper()
	calls := b.cloud.Calls(driver.OpDelete)
	if len(calls) == 0 {
		b.Fatal("the VM was not deleted")
	}
	return calls[0].At.Sub(from)
}

// drainBegins creates the machine with a pod or more, and deletes it.
func (b *bench) drainBegins(timeout time.Duration, add func()) (deleted time.Time) {
	b.Helper()
	b.create(drainTimeout(timeout))
	b.becomes(v1alpha1.MachineRunning, time.Minute)
	add()
	b.delete()
	return time.Now()
}

func TestVMIsDeletedWhenAllPodsHaveLeft(t *testing.T) {
	onBench(t, func(b *bench) {
		deleted := b.drainBegins(time.Hour, func() {
			b.pod("web")
			b.pod("db")
			b.pod("proxy", func(p *corev1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Controller: new(true)}}
			})
		})
		b.reportsSoon("Processing: Draining Node m: 2 pods left, 2 ending")
		b.pass(time.Minute)
		if at := b.deletedAt(deleted); at != grace {
			t.Errorf("the VM was deleted after %s, want %s", at, grace)
		}
		if b.get() != nil || b.evicted["web"] != 1 || b.evicted["db"] != 1 || b.evicted["proxy"] != 0 {
			t.Errorf("evicted %v, and %s", b.evicted, b.operation())
		}
	})
}

// TestDrainThatWaitsForAPodHoldsNoWorker: the only worker creates the VM of another machine
// meanwhile.
func TestDrainThatWaitsForAPodHoldsNoWorker(t *testing.T) {
	onBench(t, func(b *bench) {
		b.workers = 1
		b.takeOver(0)
		b.drainBegins(time.Hour, func() {
			b.pod("web")
			b.addBlockingBudget()
		})
		b.reportsSoon("Draining Node m: 1 pod left")
		b.create(func(m *v1alpha1.Machine) { m.Name = "other" })
		b.pass(time.Second)
		if creates, deletes := b.cloud.Calls(driver.OpCreate), b.cloud.Calls(driver.OpDelete); len(creates) != 2 || len(deletes) != 0 {
			t.Errorf("there were %d creates and %d deletes of VMs, want 2 and 0; %s", len(creates), len(deletes), b.operation())
		}
	})
}

func TestAnEmptyNodeIsDeletedAtOnce(t *testing.T) {
	onBench(t, func(b *bench) {
		deleted := b.drainBegins(time.Hour, func() {})
		b.pass(time.Second)
		if at := b.deletedAt(deleted); at > 0 || b.get() != nil {
			t.Errorf("the VM was deleted after %s, and %s", at, b.operation())
		}
	})
}

// Regardless of when a process ends, the next one continues: no pod is evicted twice, and the VM is
// deleted at the same time.
func TestAnotherProcessContinuesTheDrain(t *testing.T) {
	for _, after := range []time.Duration{0, time.Second, grace - time.Second, grace} {
		t.Run(after.String(), func(t *testing.T) {
			onBench(t, func(b *bench) {
				deleted := b.drainBegins(time.Hour, func() { b.pod("web") })
				time.Sleep(after)
				b.takeOver(500 * time.Millisecond)
				b.pass(2 * grace)
				if at := b.deletedAt(deleted); at < grace || at > grace+time.Second {
					t.Errorf("the VM was deleted after %s, want %s", at, grace)
				}
				if b.get() != nil || b.evicted["web"] != 1 {
					t.Errorf("evicted %v, and %s", b.evicted, b.operation())
				}
			})
		})
	}
}

func TestTheDrainTimeoutIsKept(t *testing.T) {
	const timeout = 10 * time.Minute
	onBench(t, func(b *bench) {
		b.addBlockingBudget()
		deleted := b.drainBegins(timeout, func() {
			b.pod("web", labelled("held"))
			b.pod("slow", labelled("other"), endless)
		})
		b.reportsSoon("Failed: Draining Node m: 2 pods left, 1 ending; a/web held by PodDisruptionBudget a/never, although")
		b.pass(timeout - time.Minute)
		if calls := b.cloud.Calls(driver.OpDelete); len(calls) > 0 {
			t.Fatalf("the VM was deleted after %s", b.deletedAt(deleted))
		}
		b.pass(time.Minute)
		// Times on objects are whole seconds.
		if at := b.deletedAt(deleted); at < timeout-time.Second || at > timeout+time.Second {
			t.Errorf("the VM was deleted after %s, want %s", at, timeout)
		}
		if b.get() != nil {
			t.Errorf("%s", b.operation())
		}
		for _, reported := range b.reported.List() {
			if strings.Contains(reported, v1alpha1.EventDrained) {
				t.Errorf("Events %v: an unfinished drain must not be reported as a success", b.reported.List())
			}
		}
	})
}

func TestDrainContinuesWhenTheBudgetAllowsIt(t *testing.T) {
	onBench(t, func(b *bench) {
		b.addBlockingBudget()
		b.drainBegins(time.Hour, func() { b.pod("web", labelled("held")) })
		b.reportsSoon("held by PodDisruptionBudget a/never")
		b.pass(5 * time.Minute)
		b.mu.Lock()
		b.refusal = nil
		b.mu.Unlock()
		b.target.Merge("poddisruptionbudgets", "a", "never", `{"status":{"disruptionsAllowed":1}}`, "status")
		b.pass(grace + time.Second)
		if b.get() != nil {
			t.Errorf("%s", b.operation())
		}
	})
}

// Each of 100 machines that are drained costs a few writes, however many passes they take.
func TestProgressIsWrittenSeldom(t *testing.T) {
	onBench(t, func(b *bench) {
		b.drainBegins(time.Hour, func() {
			for i := range 40 {
				b.pod(fmt.Sprint("p", i), func(p *corev1.Pod) { p.UID = types.UID(fmt.Sprint("p", i)) })
			}
		})
		b.pass(10 * time.Minute)
		if b.get() != nil {
			t.Errorf("%s", b.operation())
		}
		// Pending, Running, Terminating, and of the drain: its begin, perhaps its middle, and its end.
		if written := b.server.Count("patch machines/status"); written > 6 {
			t.Errorf("the status was written %d times", written)
		}
	})
}
