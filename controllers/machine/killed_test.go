package machine

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/apitest"
)

// killer ends a process after so many writes: none that it sends after that arrives.
type killer struct {
	mu     sync.Mutex
	writes int // that are let through
	dead   bool
}

// write says whether one more write arrives.
func (k *killer) write() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.writes--; k.writes >= 0 {
		return nil
	}
	k.dead = true
	return errors.New("the process is dead")
}

// watch has the killer see all writes but the making of the machine.
func (k *killer) watch(b *bench) {
	b.server.Refuse(func(r apitest.Request) error {
		if r.Verb == "get" || r.Verb == "list" || r.Verb == "create" {
			return nil
		}
		return k.write()
	})
	b.target.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetVerb() == "get" || action.GetVerb() == "list" {
			return false, nil, nil
		}
		err := k.write()
		return err != nil, nil, err
	})
}

// replace starts another process if the one before was killed, and says whether it was.
func (k *killer) replace(b *bench) bool {
	k.mu.Lock()
	dead := k.dead
	if dead {
		k.dead, k.writes = false, 1<<30
	}
	k.mu.Unlock()
	if dead {
		b.takeOver(time.Second)
		b.pass(time.Minute)
	}
	return dead
}

// state is what machine and Node say of all that this is about.
func (b *bench) state() string {
	m, n := b.get(), b.node()
	words := []string{string(m.Status.CurrentStatus.Phase), "label " + n.Labels["pool"]}
	if value := m.Annotations[v1alpha1.AnnotationLastAppliedNodePreserveValue]; value != "" {
		words = append(words, "asked "+value)
	}
	if m.Status.CurrentStatus.PreserveExpiryTime != nil {
		words = append(words, "preserved")
	}
	if n.Annotations[v1alpha1.AnnotationScaleDownDisabledByUs] != "" {
		words = append(words, "annotated")
	}
	for _, t := range n.Spec.Taints {
		words = append(words, "taint "+t.Key)
	}
	for _, c := range n.Status.Conditions {
		if c.Type == v1alpha1.NodePreserved {
			words = append(words, "Preserved="+string(c.Status))
		}
	}
	return strings.Join(words, ", ")
}

// TestKilledAtEveryWrite has a machine join, fail, be preserved, recover, be preserved again until its time is over, and
// ask for something else of its Node, and its process killed after each of the writes that this takes, one after the other:
// the next process always comes to the same.
func TestKilledAtEveryWrite(t *testing.T) {
	const taint = ", taint gpu"
	steps := []struct {
		do   func(b *bench)
		time time.Duration
		want string
	}{
		{func(b *bench) {
			b.create(func(m *v1alpha1.Machine) {
				m.Spec.NodeTemplateSpec.Labels = map[string]string{"pool": "a"}
				m.Spec.NodeTemplateSpec.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
			})
		}, 10 * time.Minute, "Pending, label a" + taint},
		{
			func(b *bench) { b.annotateNode(v1alpha1.AnnotationPreserve, v1alpha1.PreserveWhenFailed) }, 15 * time.Minute,
			"Failed, label a, asked when-failed, preserved, annotated" + taint + ", taint " + v1alpha1.TaintPreserved + ", Preserved=True",
		},
		{
			func(b *bench) { b.setReady(corev1.ConditionTrue) }, time.Minute,
			"Running, label a, asked when-failed" + taint + ", Preserved=False",
		},
		{
			func(b *bench) { b.annotateNode(v1alpha1.AnnotationPreserve, v1alpha1.PreserveNow) }, time.Minute,
			"Running, label a, asked now, preserved, annotated" + taint + ", Preserved=True",
		},
		{func(*bench) {}, 97 * time.Hour, "Running, label a" + taint + ", Preserved=False"},
	}
	for writes, killed := 0, true; killed; writes++ {
		t.Run(fmt.Sprintf("after %d writes", writes), func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.cloud.made = func(vm *testVM) { b.bootsSick(vm) }
				k := &killer{writes: writes}
				k.watch(b)
				killed = false
				for i, step := range steps {
					step.do(b)
					b.pass(step.time)
					killed = k.replace(b) || killed
					if got := b.state(); got != step.want {
						t.Fatalf("step %d:\ngot  %s\nwant %s", i+1, got, step.want)
					}
				}
			})
		})
		if t.Failed() {
			return
		}
	}
}

// bootsSick has the VM become a Node that is not ready.
func (b *bench) bootsSick(vm *testVM) {
	b.setNode(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: vm.NodeName, UID: types.UID("node-" + vm.ProviderID)}, Spec: corev1.NodeSpec{ProviderID: vm.ProviderID},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}},
	})
}
