package machine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/metadata"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletionlog"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apitest"
	"github.com/machine-controller-fleet/machine-controller-fleet/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/telemetry"
)

const (
	testProvider = "test"
	bootTime     = 3 * time.Second
)

// drainSettings are the usual ones.
var drainSettings = drain.Settings{Timeout: 2 * time.Hour, MaxEvictRetries: 360, DetachTimeout: 2 * time.Minute, ReattachTimeout: 90 * time.Second, VolumeParallelism: 4}

var nodes = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}

// bench is a whole controller with workers and timers, before API servers and a cloud in memory. It lives in a bubble, where
// time advances when no goroutine can continue.
type bench struct {
	*testing.T

	server   *apitest.Server
	secrets  *fake.Clientset // of the control cluster
	about    *metadatafake.FakeMetadataClient
	target   *fake.Clientset
	tracker  *testCluster // the same as target
	cloud    *testCloud
	reported *apitest.EventLog
	// logsEvents has each Event logged, too, as in the binary.
	logsEvents bool
	receipts   apitest.Receipts
	limits     lifecycle.Limits
	workers    int               // of processes that are started; 0 means 4
	rewire     func(*wires)      // changes how processes that start from now on reach the world; nil leaves it
	ends       func(*corev1.Pod) // called for every deleted pod; nil without a callback

	changing sync.Mutex // Nodes that are read, changed and written

	mu      sync.Mutex
	cluster *target.Cluster
	process *Controller
	gate    runner.Gate[types.NamespacedName] // of processes that are started; nil admits all
	version int                               // of Nodes
	refusal func(pod string) error            // of evictions; nil for none
	evicted map[string]int                    // pods, by name
	end     func()

	// firstConfig is that of the next process.
	firstConfig func(context.Context, *v1alpha1.Machine) (map[string]string, string, error)
}

// onBench runs a test in a bubble, with a class "c" and a process.
func onBench(t *testing.T, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{
			T: t, server: apitest.New(time.Now), reported: &apitest.EventLog{},
			limits: lifecycle.Limits{
				CreationTimeout: 20 * time.Minute, HealthTimeout: 10 * time.Minute, ResourceExhaustedRetry: 10 * time.Minute,
				PreserveTimeout: 96 * time.Hour, InPlaceUpdateTimeout: 20 * time.Minute, Drain: drainSettings,
			},
		}
		b.cloud = &testCloud{made: b.boots}
		target := newTestCluster()
		b.target, b.tracker = target.client, target
		b.secrets = fake.NewClientset(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s", ResourceVersion: "1"},
			Data:       map[string][]byte{v1alpha1.SecretKeyUserData: []byte("join <<BOOTSTRAP_TOKEN>> as <<MACHINE_NAME>>")},
		})
		b.about = apitest.SecretMetadata(b.secrets)
		b.target.PrependReactor("patch", "nodes", b.patchNode)
		b.target.PrependReactor("delete", "nodes", b.deleteNode)
		b.createClass()
		b.start()
		defer func() { b.end() }()
		test(b)
	})
}

// react has a cluster react to requests, also while a process makes some.
func react(cluster *fake.Clientset, verb, resource string, reaction clienttesting.ReactionFunc) {
	cluster.Lock()
	defer cluster.Unlock()
	cluster.PrependReactor(verb, resource, reaction)
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// wires are what a process reaches the world by.
type wires struct {
	machines        machineclient.MachineV1alpha1Interface
	secrets, target kubernetes.Interface
	evict           func(context.Context, *policyv1.Eviction) error
	cloud           driver.Driver
	controlCluster  func() string // nil when its ID is never known
}

// metadataOf is the metadata of a control cluster, of which the Secrets are elsewhere than all else.
type metadataOf struct{ secrets, others metadata.Interface }

func (m metadataOf) Resource(resource schema.GroupVersionResource) metadata.Getter {
	if resource.Resource == "secrets" {
		return m.secrets.Resource(resource)
	}
	return m.others.Resource(resource)
}

// start starts a process, which knows nothing but what the API servers show.
func (b *bench) start() {
	b.Helper()
	w := wires{machines: b.server.Client(), secrets: b.secrets, target: b.target, evict: b.evict, cloud: b.cloud}
	if b.rewire != nil {
		b.rewire(&w)
	}
	view, cluster := objectcache.NewView(), target.New(w.target)
	cluster.Evict = w.evict
	c, err := New(Config{
		Machines: w.machines, Secrets: w.secrets.CoreV1(), Metadata: metadataOf{b.about, b.server.Metadata()}, View: view, Targets: target.Single{Cluster: cluster},
		Drivers: driver.NewRegistry(map[string]driver.Driver{testProvider: w.cloud}), ControlCluster: w.controlCluster,
		Events: b.recorder(), Deletions: deletionlog.New(clock.RealClock{}, deletionlog.NewFile(&b.receipts), nil), Limits: b.limits, Clock: clock.RealClock{}, Workers: cmp.Or(b.workers, 4), Gate: b.gate,
		FirstConfig: b.firstConfig,
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
	b.server.ShowIn(objectcache.NewView())
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

// get returns the machine; nil if it was deleted.
func (b *bench) get() *v1alpha1.Machine {
	m, _ := b.server.Object("machines", "n", "m").(*v1alpha1.Machine)
	return m
}

// pass advances the time, and waits until no goroutine can continue.
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
	if err := b.tracker.Update(nodes, node, ""); err != nil {
		b.must(b.tracker.Create(nodes, node, ""))
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

// changeNode changes the machine's Node, if there is one, as another client.
func (b *bench) changeNode(change func(*corev1.Node)) {
	b.Helper()
	b.changing.Lock()
	defer b.changing.Unlock()
	if found, err := b.tracker.Get(nodes, "", "m"); err == nil {
		node, _ := found.(*corev1.Node)
		node = node.DeepCopy()
		change(node)
		b.setNode(node)
	}
}

// setReady changes whether the machine's Node is ready.
func (b *bench) setReady(status corev1.ConditionStatus) {
	b.Helper()
	b.changeNode(func(node *corev1.Node) {
		for i := range node.Status.Conditions {
			if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
				c.Status, c.LastTransitionTime = status, metav1.Now()
			}
		}
	})
}

// annotateNode sets an annotation on the machine's Node, as a user.
func (b *bench) annotateNode(key, value string) {
	b.Helper()
	b.changeNode(func(node *corev1.Node) { metav1.SetMetaDataAnnotation(&node.ObjectMeta, key, value) })
}

func (b *bench) patchNode(action clienttesting.Action) (bool, runtime.Object, error) {
	b.changing.Lock()
	defer b.changing.Unlock()
	patch, _ := action.(clienttesting.PatchAction)
	node, err := b.tracker.Get(nodes, "", patch.GetName()) // the client is busy with this request
	if err != nil {
		return true, nil, err
	}
	var wanted, is metav1.PartialObjectMetadata
	found, err1 := json.Marshal(node)
	if err := errors.Join(err1, json.Unmarshal(found, &is), json.Unmarshal(patch.GetPatch(), &wanted)); err != nil {
		return true, nil, err
	}
	if wanted.UID != "" && wanted.UID != is.UID || wanted.ResourceVersion != "" && wanted.ResourceVersion != is.ResourceVersion {
		return true, nil, apierrors.NewConflict(corev1.Resource("nodes"), is.Name, fmt.Errorf("it is %s of version %s", is.UID, is.ResourceVersion))
	}
	after, err2 := strategicpatch.StrategicMergePatch(found, patch.GetPatch(), node)
	patched := &corev1.Node{}
	if err := errors.Join(err2, json.Unmarshal(after, patched)); err != nil {
		return true, nil, fmt.Errorf("patch: %w", err)
	}
	if patched.DeletionTimestamp != nil && len(patched.Finalizers) == 0 {
		return true, patched, b.dropNode(patched.Name)
	}
	b.setNode(patched)
	return true, patched, nil
}

// deleteNode deletes a Node as an API server does: one with a finalizer exists until the finalizer is removed.
func (b *bench) deleteNode(action clienttesting.Action) (bool, runtime.Object, error) {
	b.changing.Lock()
	defer b.changing.Unlock()
	deletion, _ := action.(clienttesting.DeleteAction)
	found, err := b.tracker.Get(nodes, "", deletion.GetName())
	if err != nil {
		return true, nil, err
	}
	node, _ := found.(*corev1.Node)
	node = node.DeepCopy()
	if p := deletion.GetDeleteOptions().Preconditions; p != nil && p.UID != nil && *p.UID != node.UID {
		return true, nil, apierrors.NewConflict(corev1.Resource("nodes"), node.Name, fmt.Errorf("it is %s, and not %s", node.UID, *p.UID))
	}
	if len(node.Finalizers) == 0 {
		return true, nil, b.dropNode(node.Name)
	}
	if node.DeletionTimestamp == nil {
		node.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		b.setNode(node)
	}
	return true, nil, nil
}

func (b *bench) dropNode(name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := b.tracker.Delete(nodes, "", name)
	b.cluster.Nodes.Remove(types.NamespacedName{Name: name}, "")
	return err
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

// recorder returns what records the Events of processes that start from now on.
func (b *bench) recorder() events.EventRecorder {
	if b.logsEvents {
		return telemetry.Damped(b.reported, clock.RealClock{})
	}
	return b.reported
}
