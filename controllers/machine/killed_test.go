package machine

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// chapter is a part of a machine's life: what others do, and what has come of it after some time.
type chapter struct {
	do   func(b *bench)
	time time.Duration
	want string
}

const (
	asked  = ", label a, taint gpu" // what machines ask of their Node
	oneVM  = ", 1 of 1 VMs"
	thatIs = "gone, 0 of 1 VMs"
	// everything that is a state which depends on where the process was killed.
	anyState = ""
)

// joins creates a machine whose template changes its Node.
func joins(b *bench) {
	b.create(func(m *v1alpha1.Machine) {
		m.Spec.NodeTemplateSpec.Labels = map[string]string{"pool": "a"}
		m.Spec.NodeTemplateSpec.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	})
}

// falters has the Node lose its health.
func falters(b *bench) { b.setReady(corev1.ConditionUnknown) }

// joinsSick is joins, with a Node that is not ready.
func joinsSick(b *bench) {
	b.cloud.Created = b.bootsSick
	joins(b)
}

// lives are lives of machines, which together contain every call that the controller sends.
var lives = []struct {
	name     string
	chapters []chapter
}{
	{"joins, falters, recovers, is drained", []chapter{
		{joins, time.Minute, "Running" + oneVM + ", Node held" + asked},
		{falters, time.Minute, "Unknown" + oneVM + ", Node held" + asked},
		{func(b *bench) { b.setReady(corev1.ConditionTrue) }, time.Minute, "Running" + oneVM + ", Node held" + asked},
		{func(b *bench) { b.works(); b.delete() }, 20 * time.Minute, thatIs},
	}},
	{"is given up, and drained by force", []chapter{
		{joins, time.Minute, "Running" + oneVM + ", Node held" + asked},
		{func(b *bench) { b.works().isKubeletDead = true; falters(b) }, 15 * time.Minute, "Failed" + oneVM + ", Node held" + asked},
		{(*bench).delete, 5 * time.Minute, thatIs},
	}},
	{"never joins", []chapter{
		{func(b *bench) { b.cloud.Created = func(*fakecloud.Resource) {}; joins(b) }, 19 * time.Minute, "Pending" + oneVM + ", 1 token"},
		{func(*bench) {}, 5 * time.Minute, "Failed" + oneVM + ", 1 token"},
		{(*bench).delete, time.Minute, thatIs},
	}},
	{"is deleted while its VM is created", []chapter{
		{func(b *bench) { b.cloud.Created = func(vm *fakecloud.Resource) { b.delete(); b.boots(vm) }; joins(b) }, time.Minute, thatIs},
	}},
	{"loses its class while its VM is created, and is deleted", []chapter{
		{func(b *bench) {
			b.cloud.Created = func(vm *fakecloud.Resource) { b.loseClass(); b.delete(); b.boots(vm) }
			joins(b)
		}, time.Minute, anyState},
		{func(b *bench) { b.createClass() }, time.Minute, thatIs},
	}},
	{"deleted with its Node", []chapter{
		{joins, time.Minute, "Running" + oneVM + ", Node held" + asked},
		{func(b *bench) { b.works(); b.deletes("m") }, 20 * time.Minute, thatIs},
	}},
	{"is updated in place, with failures", []chapter{
		{joins, time.Minute, "Running" + oneVM + ", Node held" + asked},
		{
			func(b *bench) { b.works(); b.selects() }, 10 * time.Minute,
			"InPlaceUpdating" + oneVM + ", Node held, cordoned" + asked + ", taint " + corev1.TaintNodeUnschedulable +
				", InPlaceUpdate=ReadyForUpdate",
		},
		{
			func(b *bench) { b.labelNode(v1alpha1.LabelUpdateResult, v1alpha1.UpdateResultFailed) }, time.Minute,
			"InPlaceUpdateFailed" + oneVM + ", Node held, cordoned" + asked + ", taint " + corev1.TaintNodeUnschedulable +
				", InPlaceUpdate=UpdateFailed",
		},
		{
			func(b *bench) { b.labelNode(v1alpha1.LabelUpdateResult, "") }, time.Minute,
			"InPlaceUpdating" + oneVM + ", Node held, cordoned" + asked + ", taint " + corev1.TaintNodeUnschedulable +
				", InPlaceUpdate=ReadyForUpdate",
		},
		{
			func(*bench) {}, 20 * time.Minute,
			"InPlaceUpdateFailed" + oneVM + ", Node held, cordoned" + asked + ", taint " + corev1.TaintNodeUnschedulable +
				", InPlaceUpdate=UpdateFailed",
		},
		{
			func(b *bench) { b.labelNode(v1alpha1.LabelUpdateResult, v1alpha1.UpdateResultSuccessful) }, time.Minute,
			"Running" + oneVM + ", Node held" + asked + ", taint " + v1alpha1.TaintCriticalComponentsNotReady + ", InPlaceUpdate=UpdateSuccessful",
		},
		{(*bench).delete, 5 * time.Minute, thatIs},
	}},
	{"is preserved", []chapter{
		{joinsSick, 10 * time.Minute, "Pending" + oneVM + ", 1 token, Node held" + asked},
		{
			func(b *bench) { b.annotateNode(v1alpha1.AnnotationPreserve, v1alpha1.PreserveWhenFailed) }, 15 * time.Minute,
			"Failed" + oneVM + ", 1 token, asked when-failed, preserved, Node held, label a, annotated, taint gpu, taint " +
				v1alpha1.TaintPreserved + ", Preserved=True",
		},
		{
			func(b *bench) { b.setReady(corev1.ConditionTrue) }, time.Minute,
			"Running" + oneVM + ", asked when-failed, Node held" + asked + ", Preserved=False",
		},
		{
			func(b *bench) { b.annotateNode(v1alpha1.AnnotationPreserve, v1alpha1.PreserveNow) }, time.Minute,
			"Running" + oneVM + ", asked now, preserved, Node held, label a, annotated, taint gpu, Preserved=True",
		},
		{func(*bench) {}, 97 * time.Hour, "Running" + oneVM + ", Node held" + asked + ", Preserved=False"},
		{(*bench).delete, time.Minute, thatIs},
	}},
}

// everyCall are the writes and the calls of the cloud that machines' lives have.
var everyCall = []string{
	"create pods/eviction", "create secrets", "create_machine", "delete machines", "delete nodes", "delete pods", "delete secrets",
	"delete volumeattachments", "delete_machine", "get_machine_status", "get_unknown_fields", "get_volume_ids", "initialize_machine",
	"patch machineclasses", "patch machines", "patch machines/status", "patch nodes", "patch nodes/status",
	"patch poddisruptionbudgets/status", "update secrets",
}

// TestKilledAtEveryCall runs each life many times, and kills the process at each write and at each
// call of the cloud, one after the other, before it arrives and after it took effect. The next
// process always reaches the same end.
func TestKilledAtEveryCall(t *testing.T) {
	seen, lived, stride := map[string]bool{}, 0, 1
	if testing.Short() {
		stride = 7
	}
	for _, l := range lives {
		t.Run(l.name, func(t *testing.T) {
			lived++
			for _, when := range []moment{before, after} {
				var calls []string
				for n, killed := 0, true; killed; n += stride {
					t.Run(fmt.Sprintf("call %d %s", n, when), func(t *testing.T) {
						calls, killed = live(t, l.chapters, func(call int) moment {
							if call == n {
								return when
							}
							return never
						})
					})
					if t.Failed() {
						return
					}
				}
				t.Logf("killed %s, at each of %d calls: %v", when, len(calls), calls)
				for _, call := range calls {
					seen[call] = true
				}
			}
		})
	}
	if got := slices.Sorted(maps.Keys(seen)); !t.Failed() && lived == len(lives) && !slices.Equal(got, everyCall) {
		t.Errorf("the lives have the calls %q, want %q", got, everyCall)
	}
}

// TestKilledOften kills process after process in the same life, at calls that are drawn from a
// seed.
func TestKilledOften(t *testing.T) {
	for seed := range uint64(worlds.Some(20)) {
		for _, l := range lives {
			t.Run(fmt.Sprintf("%s, seed %d", l.name, seed), func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 0))
				live(t, l.chapters, func(int) moment {
					return []moment{before, after, never, never, never, never}[random.IntN(6)]
				})
			})
		}
	}
}

// live runs a life in which processes die at the given calls. It returns the calls that they have
// sent, and whether one was killed.
func live(t *testing.T, chapters []chapter, dies func(call int) moment) (calls []string, killed bool) {
	t.Helper()
	onBench(t, func(b *bench) {
		k := newKiller(b, dies)
		defer func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			if calls, killed = k.calls, len(k.deaths) > 0; b.Failed() {
				b.Logf("killed %s", strings.Join(k.deaths, "; "))
			}
		}()
		for i, c := range chapters {
			c.do(b)
			k.pass(c.time)
			if c.want == anyState {
				continue
			}
			if got := b.state(); got != c.want {
				b.Fatalf("chapter %d:\ngot  %s\nwant %s", i+1, got, c.want)
			}
		}
		for pod, times := range b.evictions() {
			if times > 1 {
				b.Errorf("pod %s was evicted %d times", pod, times)
			}
		}
	})
	return calls, killed
}

// loseClass removes the class in spite of its finalizer.
func (b *bench) loseClass() {
	b.Helper()
	b.server.Delete("machineclasses", "n", "c")
	b.patchClass(`{"metadata":{"finalizers":null}}`)
}

// deletes deletes the machine's Node.
func (b *bench) deletes(node string) {
	b.Helper()
	b.target.Delete("nodes", "", node)
}

// state returns what exists of the machine.
func (b *bench) state() string {
	b.Helper()
	words := []string{"gone"}
	m := b.get()
	if m != nil {
		words[0] = string(m.Status.CurrentStatus.Phase)
	}
	now, ever := b.cloud.VMs()
	words = append(words, fmt.Sprintf("%d of %d VMs", now, ever))
	if slices.ContainsFunc(b.cloud.All(), func(r fakecloud.Resource) bool { return b.cloud.Exists(&r) && !r.Ready }) {
		words = append(words, "not set up")
	}
	if tokens := slices.DeleteFunc(b.left(), func(what string) bool { return strings.HasPrefix(what, "Node") }); len(tokens) > 0 {
		words = append(words, fmt.Sprintf("%d token", len(tokens)))
	}
	if m != nil {
		words = append(words, b.free()...)
		if value := m.Annotations[v1alpha1.AnnotationLastAppliedNodePreserveValue]; value != "" {
			words = append(words, "asked "+value)
		}
		if m.Status.CurrentStatus.PreserveExpiryTime != nil {
			words = append(words, "preserved")
		}
	}
	if node := apiserver.Read[corev1.Node](b.target, "nodes", "", "m"); node != nil {
		words = append(words, shownOn(node)...)
	}
	return strings.Join(words, ", ")
}

// free are those of class and secret that may go while there are machines.
func (b *bench) free() (free []string) {
	b.Helper()
	secret := apiserver.Read[corev1.Secret](b.server, "secrets", "n", "s")
	if !slices.Contains(secret.Finalizers, v1alpha1.SecretFinalizerName) {
		free = append(free, "secret free")
	}
	if !slices.Contains(b.server.Get("machineclasses", "n", "c").GetFinalizers(), v1alpha1.FinalizerName) {
		free = append(free, "class free")
	}
	return free
}

// shownOn returns the description of the machine on its Node.
func shownOn(n *corev1.Node) []string {
	words := []string{"Node"}
	if slices.Contains(n.Finalizers, v1alpha1.NodeFinalizerName) {
		words[0] = "Node held"
	}
	if n.Spec.Unschedulable {
		words = append(words, "cordoned")
	}
	words = append(words, "label "+n.Labels["pool"])
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
		if c.Type == v1alpha1.NodeInPlaceUpdate {
			words = append(words, "InPlaceUpdate="+c.Reason)
		}
	}
	return words
}

// bootsSick has the VM become a Node that is not ready.
func (b *bench) bootsSick(vm *fakecloud.Resource) {
	b.setNode(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: vm.NodeName, UID: types.UID("node-" + vm.ID)}, Spec: corev1.NodeSpec{ProviderID: vm.ID},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}},
	})
}
