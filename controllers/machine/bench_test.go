package machine

import (
	"cmp"
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apitest"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/bubbles"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

func TestMain(m *testing.M) {
	bubbles.IgnoreErrors()
	m.Run()
}

const (
	testProvider = "test"
	bootTime     = 3 * time.Second
)

// drainSettings are the usual ones.
var drainSettings = drain.Settings{
	Timeout: 2 * time.Hour, MaxEvictRetries: 360, DetachTimeout: 2 * time.Minute, ReattachTimeout: 90 * time.Second, VolumeParallelism: 4,
	SeveralBudgets: true,
}

// bench is a whole controller with workers and timers, before API servers and a cloud in memory. It
// lives in a bubble, where time advances when no goroutine can continue.
type bench struct {
	*testing.T

	server   *apiserver.Server // of the control cluster
	target   *apiserver.Server // of the target cluster
	cloud    *fakecloud.Cloud
	reported *apitest.EventLog
	// logsEvents has each Event logged, too, as in the binary.
	logsEvents bool
	receipts   apitest.Receipts
	limits     lifecycle.Limits
	workers    int               // of processes that are started; 0 means 4
	rewire     func(*wires)      // changes how processes that start from now on reach the world; nil leaves it
	ends       func(*corev1.Pod) // called for every deleted pod; nil without a callback

	mu      sync.Mutex
	cluster *target.Cluster
	process *Controller
	gate    runner.Gate[types.NamespacedName] // of processes that are started; nil admits all
	refusal func(pod string) error            // of evictions; nil for none
	evicted map[string]int                    // pods, by name
	end     func()

	// firstConfig is that of the next process.
	firstConfig func(context.Context, *v1alpha1.Machine) (map[string]string, string, error)
	// called is that of the next process.
	called func(class *v1alpha1.MachineClass, began time.Time, err error)
}

// onBench runs a test in a bubble, with a class "c" and a process.
func onBench(t *testing.T, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{
			T: t, target: apiserver.Recording(), reported: &apitest.EventLog{},
			server: apiserver.Recording(&corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s"},
				Data:       map[string][]byte{v1alpha1.SecretKeyUserData: []byte("join <<BOOTSTRAP_TOKEN>> as <<MACHINE_NAME>>")},
			}),
			limits: lifecycle.Limits{
				CreationTimeout: 20 * time.Minute, HealthTimeout: 10 * time.Minute, ResourceExhaustedRetry: 10 * time.Minute,
				PreserveTimeout: 96 * time.Hour, InPlaceUpdateTimeout: 20 * time.Minute, Drain: drainSettings,
			},
		}
		b.cloud = &fakecloud.Cloud{Clock: time.Now, Created: b.boots, Prepares: true, Twins: true, Forgets: true}
		apiserver.Follow(b.target, "pods", b.podChanged)
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

// wires contains the connections of a process.
type wires struct {
	machines        machineclient.MachineV1alpha1Interface
	secrets, target kubernetes.Interface
	evict           func(context.Context, *policyv1.Eviction) error
	cloud           driver.Driver
	controlCluster  func() string // nil when its ID is never known
	targetName      string        // of the target cluster, all Nodes of which are cached where it has one
	// show shows the objects of the control cluster in the view of the process.
	show func(*objectcache.View)
}

// start starts a process, which knows nothing but what the API servers show.
func (b *bench) start() {
	b.Helper()
	w := wires{
		machines: b.server.Machines(), secrets: b.server.Core(), target: b.target.Core(), evict: b.evict, cloud: b.cloud.Driver(),
		show: b.server.ShowIn,
	}
	if b.rewire != nil {
		b.rewire(&w)
	}
	view, cluster := objectcache.NewView(), target.New(w.target)
	cluster.Evict, cluster.Name = w.evict, w.targetName
	c, err := New(Config{
		Machines: w.machines, Secrets: w.secrets.CoreV1(), Metadata: b.server.Metadata(), View: view, Targets: target.Single{Cluster: cluster},
		Drivers: driver.NewRegistry(map[string]driver.Driver{testProvider: w.cloud}), ControlCluster: w.controlCluster,
		Events: b.recorder(), Deletions: deletion.NewRecorder(clock.RealClock{}, deletion.NewFile(&b.receipts), nil), Limits: b.limits,
		Clock: clock.RealClock{}, Workers: cmp.Or(b.workers, 4), Gate: b.gate,
		FirstConfig: b.firstConfig, Called: b.called,
	})
	b.must(err)
	b.mu.Lock()
	b.cluster, b.process = cluster, c
	b.mu.Unlock()
	w.show(view)
	apiserver.Follow(b.target, "nodes", func(node *corev1.Node, gone bool) {
		if gone {
			cluster.Nodes.Remove(types.NamespacedName{Name: node.Name}, "")
		} else {
			cluster.Nodes.Apply(node, false)
		}
	})
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
	apiserver.Add(b.server, &v1alpha1.MachineClass{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}, Provider: testProvider,
		SecretRef: &corev1.SecretReference{Namespace: "n", Name: "s"},
	})
}

func (b *bench) patchClass(patch string) {
	b.Helper()
	b.server.Merge("machineclasses", "n", "c", patch)
}

// create creates the machine "m" of the class.
func (b *bench) create(change ...func(*v1alpha1.Machine)) *v1alpha1.Machine {
	b.Helper()
	m := &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "m"},
		Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: "c"}},
	}
	for _, f := range change {
		f(m)
	}
	return apiserver.Add(b.server, m)
}

// withoutDeadline has a machine wait for its Node without end.
func withoutDeadline(m *v1alpha1.Machine) {
	m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachineCreationTimeout: &metav1.Duration{Duration: 10000 * time.Hour}}
}

func (b *bench) delete() {
	b.Helper()
	b.server.Delete("machines", "n", "m")
}

// get returns the machine; nil if it was deleted.
func (b *bench) get() *v1alpha1.Machine {
	return apiserver.Read[v1alpha1.Machine](b.server, "machines", "n", "m")
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
func (b *bench) boots(vm *fakecloud.Resource) {
	time.AfterFunc(bootTime, func() {
		if b.cloud.Exists(vm) {
			b.joins(vm)
		}
	})
}

// joins creates the Node of a VM.
func (b *bench) joins(vm *fakecloud.Resource) {
	b.setNode(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: vm.NodeName, UID: types.UID("node-" + vm.ID)}, Spec: corev1.NodeSpec{ProviderID: vm.ID},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	})
}

// setNode writes a Node.
func (b *bench) setNode(node *corev1.Node) { apiserver.Add(b.target, node) }

// node returns the machine's Node.
func (b *bench) node() *corev1.Node {
	b.Helper()
	node := apiserver.Read[corev1.Node](b.target, "nodes", "", "m")
	if node == nil {
		b.Fatal("the machine has no Node")
	}
	return node
}

// changeNode changes the machine's Node, if there is one, as another client.
func (b *bench) changeNode(change func(*corev1.Node)) {
	apiserver.Change(b.target, "nodes", "", "m", change)
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

// left returns what is left in the target cluster.
func (b *bench) left() (found []string) {
	for _, resource := range []string{"nodes", "secrets"} {
		for _, o := range b.target.List(resource) {
			found = append(found, o.GetKind()+" "+o.GetName())
		}
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
