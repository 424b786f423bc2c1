package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/apitest"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objects"
	"github.com/machine-controller-fleet/machine-controller-fleet/target"
)

const (
	testProvider = "test"
	bootTime     = 3 * time.Second
)

// drainSettings are the usual ones.
var drainSettings = drain.Settings{Timeout: 2 * time.Hour, MaxEvictRetries: 360, DetachTimeout: 2 * time.Minute, ReattachTimeout: 90 * time.Second, VolumeParallelism: 4}

var nodes = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}

// bench is a whole controller with workers and timers, before API servers and a cloud in memory. It lives in a bubble, where
// time passes when everybody rests.
type bench struct {
	*testing.T

	server  *apitest.Server
	secrets *fake.Clientset // of the control cluster
	target  *fake.Clientset
	cloud   *testCloud
	told    *apitest.EventLog
	limits  lifecycle.Limits

	mu      sync.Mutex
	cluster *target.Cluster
	process *Controller
	gate    runner.Gate[types.NamespacedName] // of processes that are started; nil lets all in
	version int                               // of Nodes
	refusal func(pod string) error            // of evictions; nil for none
	evicted map[string]int                    // pods, by name
	end     func()
}

// onBench runs a test in a bubble, with a class "c" and a process.
func onBench(t *testing.T, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{
			T: t, server: apitest.New(time.Now), target: fake.NewClientset(), told: &apitest.EventLog{},
			secrets: fake.NewClientset(&corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s", ResourceVersion: "1"},
				Data:       map[string][]byte{v1alpha1.SecretKeyUserData: []byte("join <<BOOTSTRAP_TOKEN>> as <<MACHINE_NAME>>")},
			}),
			limits: lifecycle.Limits{
				CreationTimeout: 20 * time.Minute, HealthTimeout: 10 * time.Minute, ResourceExhaustedRetry: 10 * time.Minute,
				PreserveTimeout: 96 * time.Hour, Drain: drainSettings,
			},
		}
		b.cloud = &testCloud{made: b.boots}
		b.target.PrependReactor("patch", "nodes", b.patchNode)
		b.target.PrependReactor("delete", "nodes", b.deleteNode)
		b.createClass()
		b.start()
		defer func() { b.end() }()
		test(b)
	})
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// start starts a process, which knows nothing but what the API servers show.
func (b *bench) start() {
	b.Helper()
	view, cluster := objects.NewView(), target.New(b.target)
	cluster.Evict = b.evict
	c, err := New(Config{
		Machines: b.server.Client(), Secrets: b.secrets.CoreV1(), View: view, Targets: target.Single{Cluster: cluster},
		Drivers: driver.NewRegistry(map[string]driver.Driver{testProvider: b.cloud}),
		Events:  b.told, Limits: b.limits, Clock: clock.RealClock{}, Workers: 4, Gate: b.gate,
	})
	b.must(err)
	b.mu.Lock()
	b.cluster, b.process = cluster, c
	b.mu.Unlock()
	b.server.ShowIn(view)
	list, err := b.target.CoreV1().Nodes().List(b.Context(), metav1.ListOptions{})
	b.must(err)
	for i := range list.Items {
		cluster.Nodes.Apply(&list.Items[i], false)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{})) // what fails here is meant to
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx)
	}()
	b.end = func() {
		cancel()
		<-ended
	}
}

// takeOver ends the process and has another one go on after the time.
func (b *bench) takeOver(after time.Duration) {
	b.Helper()
	b.end()
	b.server.ShowIn(objects.NewView())
	time.Sleep(after)
	b.start()
}

func (b *bench) createClass() {
	b.Helper()
	_, err := b.server.Client().MachineClasses("n").Create(b.Context(), &v1alpha1.MachineClass{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}, Provider: testProvider,
		SecretRef: &corev1.SecretReference{Namespace: "n", Name: "s"},
	}, metav1.CreateOptions{})
	b.must(err)
}

func (b *bench) patchClass(patch string) {
	b.Helper()
	_, err := b.server.Client().MachineClasses("n").Patch(b.Context(), "c", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	b.must(err)
}

// create makes the machine "m" of the class.
func (b *bench) create(change ...func(*v1alpha1.Machine)) *v1alpha1.Machine {
	b.Helper()
	m := &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "m"},
		Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: "c"}},
	}
	for _, f := range change {
		f(m)
	}
	made, err := b.server.Client().Machines("n").Create(b.Context(), m, metav1.CreateOptions{})
	b.must(err)
	return made
}

// patient has a machine wait for its Node for ever.
func patient(m *v1alpha1.Machine) {
	m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachineCreationTimeout: &metav1.Duration{Duration: 10000 * time.Hour}}
}

func (b *bench) delete() {
	b.Helper()
	b.must(b.server.Client().Machines("n").Delete(b.Context(), "m", metav1.DeleteOptions{}))
}

// get returns the machine; nil when it is gone.
func (b *bench) get() *v1alpha1.Machine {
	m, _ := b.server.Object("machines", "n", "m").(*v1alpha1.Machine)
	return m
}

// pass lets time pass, and everybody come to rest.
func (b *bench) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// becomes waits until the machine is in a phase, at most for limit, and returns how long that took.
func (b *bench) becomes(phase v1alpha1.MachinePhase, limit time.Duration) time.Duration {
	b.Helper()
	start := time.Now()
	for time.Since(start) <= limit {
		synctest.Wait()
		if m := b.get(); m != nil && m.Status.CurrentStatus.Phase == phase {
			return time.Since(start)
		}
		time.Sleep(time.Second)
	}
	b.Fatalf("the machine has not become %s in %s: %+v", phase, limit, b.get())
	return 0
}

// boots has the VM of a machine become a Node.
func (b *bench) boots(vm *testVM) {
	time.AfterFunc(bootTime, func() {
		if !b.cloud.boots(vm) {
			return
		}
		b.setNode(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: vm.NodeName, UID: types.UID("node-" + vm.ProviderID)}, Spec: corev1.NodeSpec{ProviderID: vm.ProviderID},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		})
	})
}

// setNode writes a Node, and shows it.
func (b *bench) setNode(node *corev1.Node) {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.version++
	node.ResourceVersion = fmt.Sprint(b.version)
	tracker := b.target.Tracker()
	if err := tracker.Update(nodes, node, ""); err != nil {
		b.must(tracker.Create(nodes, node, ""))
	}
	b.cluster.Nodes.Apply(node.DeepCopy(), false)
}

// node returns the machine's Node.
func (b *bench) node() *corev1.Node {
	b.Helper()
	node, err := b.target.CoreV1().Nodes().Get(b.Context(), "m", metav1.GetOptions{})
	b.must(err)
	return node
}

// setReady changes whether the machine's Node is ready.
func (b *bench) setReady(status corev1.ConditionStatus) {
	b.Helper()
	node := b.node()
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			c.Status = status
		}
	}
	b.setNode(node)
}

// annotateNode has somebody put an annotation on the machine's Node.
func (b *bench) annotateNode(key, value string) {
	b.Helper()
	node := b.node()
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, key, value)
	b.setNode(node)
}

func (b *bench) patchNode(action clienttesting.Action) (bool, runtime.Object, error) {
	patch, _ := action.(clienttesting.PatchAction)
	node, err := b.target.Tracker().Get(nodes, "", patch.GetName()) // the client is busy with this request
	if err != nil {
		return true, nil, err
	}
	before, err1 := json.Marshal(node)
	after, err2 := strategicpatch.StrategicMergePatch(before, patch.GetPatch(), node)
	patched := &corev1.Node{}
	if err := json.Unmarshal(after, patched); err1 != nil || err2 != nil || err != nil {
		return true, nil, fmt.Errorf("patch: %w, %w, %w", err1, err2, err)
	}
	b.setNode(patched)
	return true, patched, nil
}

func (b *bench) deleteNode(action clienttesting.Action) (bool, runtime.Object, error) {
	deletion, _ := action.(clienttesting.DeleteAction)
	b.mu.Lock()
	defer b.mu.Unlock()
	err := b.target.Tracker().Delete(nodes, "", deletion.GetName())
	b.cluster.Nodes.Remove(types.NamespacedName{Name: deletion.GetName()}, "")
	return true, nil, err
}

// left returns what is left in the target cluster.
func (b *bench) left() (found []string) {
	b.Helper()
	list, err1 := b.target.CoreV1().Nodes().List(b.Context(), metav1.ListOptions{})
	secrets, err2 := b.target.CoreV1().Secrets("").List(b.Context(), metav1.ListOptions{})
	b.must(err1)
	b.must(err2)
	for _, n := range list.Items {
		found = append(found, "Node "+n.Name)
	}
	for _, s := range secrets.Items {
		found = append(found, "Secret "+s.Name)
	}
	return found
}
