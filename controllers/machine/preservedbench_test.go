package machine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// deadlocks has the Node of the machine be broken, or mended, while its kubelet works.
func (b *bench) deadlocks(status corev1.ConditionStatus) {
	b.Helper()
	const broken corev1.NodeConditionType = "KernelDeadlock"
	node := b.node()
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == broken {
			c.Status = status
			b.setNode(node)
			return
		}
	}
	node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: broken, Status: status})
	b.setNode(node)
}

// preserved returns the Node's condition Preserved.
func (b *bench) preserved() string {
	b.Helper()
	for _, c := range b.node().Status.Conditions {
		if c.Type == v1alpha1.NodePreserved {
			return string(c.Status) + ": " + c.Message
		}
	}
	return ""
}

// preservedSoon waits until that begins with a text.
func (b *bench) preservedSoon(text string) {
	b.Helper()
	for range 60 {
		if b.pass(time.Second); strings.HasPrefix(b.preserved(), text) {
			return
		}
	}
	b.Fatalf("the Node has %q, want %q", b.preserved(), text)
}

// failsPreserved creates a machine with pods whose kernel deadlocks, and waits until it has failed.
// It is preserved then.
func (b *bench) failsPreserved(timeout time.Duration, add func()) {
	b.Helper()
	b.create(drainTimeout(timeout), func(m *v1alpha1.Machine) {
		m.Spec.NodeConditions = new("KernelDeadlock")
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationPreserve, v1alpha1.PreserveWhenFailed)
	})
	b.becomes(v1alpha1.MachineRunning, time.Minute)
	add()
	b.deadlocks(corev1.ConditionTrue)
	b.becomes(v1alpha1.MachineFailed, 11*time.Minute)
}

func TestPodsLeaveTheNodeOfAPreservedMachine(t *testing.T) {
	onBench(t, func(b *bench) {
		b.failsPreserved(time.Hour, func() {
			b.pod("web")
			b.pod("proxy", func(p *corev1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Controller: new(true)}}
			})
		})
		b.pass(grace / 2)
		b.takeOver(time.Second)
		b.preservedSoon("True: " + v1alpha1.PreservedNodeDrained)
		if b.node().Spec.Unschedulable || b.evicted["web"] != 1 || b.evicted["proxy"] != 0 {
			t.Errorf("cordoned: %t, evicted: %v; want a taint only, and the pod deleted", b.node().Spec.Unschedulable, b.evicted)
		}

		// That the Node was drained once does not mean that it is empty when its VM is to be deleted.
		b.pod("tolerant")
		b.pass(time.Hour)
		if b.evicted["tolerant"] != 0 || len(b.cloud.Calls(driver.OpDelete)) > 0 {
			t.Fatalf("evicted %v, deleted %v from a Node that was drained", b.evicted, b.cloud.Calls(driver.OpDelete))
		}
		b.delete()
		deleted := time.Now()
		b.pass(2 * grace)
		if at := b.deletedAt(deleted); at != grace || b.evicted["tolerant"] != 1 || b.get() != nil {
			t.Errorf("the VM was deleted after %s, want %s; evicted %v", at, grace, b.evicted)
		}
	})
}

func TestTheDrainOfAPreservedMachineIsForcedWhenItsTimeIsOver(t *testing.T) {
	onBench(t, func(b *bench) {
		b.addBlockingBudget()
		b.failsPreserved(20*time.Minute, func() { b.pod("web", labelled("held")) })
		b.preservedSoon("False: " + v1alpha1.PreservedNodeNotDrained + " Draining Node m: 1 pod left; a/web held by PodDisruptionBudget a/never")
		b.pass(18 * time.Minute)
		if b.target.Get("pods", "a", "web") == nil {
			t.Fatal("the pod is gone before its time was over")
		}
		b.pass(2 * time.Minute)
		b.preservedSoon("True: " + v1alpha1.PreservedNodeForced + " The cause: the time for the drain is over.")
	})
}

func TestTheLabelForcesTheDrainOfAPreservedMachine(t *testing.T) {
	onBench(t, func(b *bench) {
		b.addBlockingBudget()
		b.failsPreserved(time.Hour, func() { b.pod("web", labelled("held")) })
		b.preservedSoon("False: ")
		b.server.Merge("machines", "n", "m", fmt.Sprintf(`{"metadata":{"labels":{%q:"True"}}}`, v1alpha1.LabelForceDrain))
		b.preservedSoon("True: " + v1alpha1.PreservedNodeForced + " The cause: the machine has the label force-deletion.")
	})
}

// The remaining pods stay, and are no longer drained.
func TestDrainOfARecoveredMachineIsCancelled(t *testing.T) {
	onBench(t, func(b *bench) {
		b.addBlockingBudget()
		b.failsPreserved(20*time.Minute, func() { b.pod("web", labelled("held")) })
		b.preservedSoon("False: ")
		b.deadlocks(corev1.ConditionFalse)
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		b.pass(time.Hour)
		if b.target.Get("pods", "a", "web") == nil {
			t.Error("the pod is gone")
		}
		if drains := b.process.drains; drains.Len() > 0 {
			t.Errorf("the process is still about %d drains", drains.Len())
		}
	})
}
