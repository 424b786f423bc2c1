package node

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/target"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const others = "somebody.example/else"

func node(change func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "m", UID: "node", ResourceVersion: "1", Finalizers: []string{others, v1alpha1.NodeFinalizerName},
		DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)}, Labels: map[string]string{v1alpha1.LabelMachineName: "m"},
	}}
	if change != nil {
		change(n)
	}
	return n
}

func boundTo(ref string) func(*corev1.Node) {
	return func(n *corev1.Node) { metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.AnnotationMachine, ref) }
}

func machine(namespace, name, nodeName string) *v1alpha1.Machine {
	return &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, ResourceVersion: "1", Labels: map[string]string{v1alpha1.LabelNode: nodeName},
	}}
}

func TestNodesThatHaveNoMachineAreLetGo(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.Node)
		served string
		// live are the machines that there are, and shown those of them that the cache shows.
		live, shown []*v1alpha1.Machine
		// forged are shown, and not the Node's.
		forged []*v1alpha1.Machine
		goes   bool
	}{
		"its machine is gone":                                {goes: true},
		"there are others":                                   {live: []*v1alpha1.Machine{machine("n", "other", "other")}, goes: true},
		"it is not to be deleted":                            {change: func(n *corev1.Node) { n.DeletionTimestamp = nil }},
		"its machine is here":                                {live: []*v1alpha1.Machine{machine("n", "m", "m")}, shown: []*v1alpha1.Machine{machine("n", "m", "m")}},
		"its machine is not shown here":                      {live: []*v1alpha1.Machine{machine("elsewhere", "m", "m")}},
		"its machine has another name":                       {live: []*v1alpha1.Machine{machine("n", "a", "m")}},
		"its machine does not name it any more":              {live: []*v1alpha1.Machine{machine("n", "m", "")}},
		"it names none, and one names it":                    {change: func(n *corev1.Node) { n.Labels = nil }, live: []*v1alpha1.Machine{machine("n", "a", "m")}},
		"it names none, and none names it":                   {change: func(n *corev1.Node) { n.Labels = nil }, goes: true},
		"one of that name is in none of ours":                {served: "n", live: []*v1alpha1.Machine{machine("elsewhere", "m", "m")}, goes: true},
		"the machine that it is bound to is gone":            {change: boundTo("n/m/u"), goes: true},
		"the machine that it is bound to is there":           {change: boundTo("n/m/u"), live: []*v1alpha1.Machine{machine("n", "m", "other")}},
		"the machine that it is bound to was made anew":      {change: boundTo("n/m/before"), live: []*v1alpha1.Machine{machine("n", "m", "m")}},
		"the machine that it is bound to is here":            {change: boundTo("n/m/u"), live: []*v1alpha1.Machine{machine("n", "m", "m")}, shown: []*v1alpha1.Machine{machine("n", "m", "m")}},
		"it is bound, and one of another namespace names it": {change: boundTo("n/m/u"), live: []*v1alpha1.Machine{machine("forger", "m", "m")}, goes: true},
		"it is bound, and one that names it is shown":        {change: boundTo("n/m/u"), live: []*v1alpha1.Machine{machine("forger", "m", "m")}, forged: []*v1alpha1.Machine{machine("forger", "m", "m")}, goes: true},
		"it is bound to a machine of a namespace not served": {change: boundTo("elsewhere/m/u"), served: "n"},
		"another client has removed the finalizer":           {change: func(n *corev1.Node) { n.Finalizers = []string{others} }, goes: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, tc.served, node(tc.change), tc.live...)
				for _, m := range slices.Concat(tc.shown, tc.forged) {
					b.view.Machines.Apply(m, false)
				}
				b.cluster.Nodes.Apply(node(tc.change), false)
				b.expect(tc.goes)
				if asked := b.machines.Actions(); tc.shown != nil && len(asked) > 0 {
					t.Errorf("asked %v for a machine that is shown", asked)
				}
			})
		})
	}
}

// The last machine goes while its Node waits for that: one that is shown here tells, and of another one nobody does.
func TestTheEndOfTheMachineIsHeardOf(t *testing.T) {
	for name, shown := range map[string]bool{"shown here": true, "not shown": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := machine("n", "m", "m")
				b := newBench(t, "", node(nil), m)
				if shown {
					b.view.Machines.Apply(m, false)
				}
				b.cluster.Nodes.Apply(node(nil), false)
				b.expect(false)
				if err := b.machines.Resource(v1alpha1.SchemeGroupVersion.WithResource("machines")).Namespace("n").Delete(t.Context(), "m", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				if shown {
					b.view.Machines.Remove(objectcache.Key(m), "")
				} else {
					time.Sleep(machinePoll)
				}
				b.expect(true)
			})
		})
	}
}

// bench is a controller before two clusters.
type bench struct {
	*testing.T

	machines *metadatafake.FakeMetadataClient
	target   *fake.Clientset
	view     *objectcache.View
	cluster  *target.Cluster
}

func newBench(t *testing.T, served string, n *corev1.Node, machines ...*v1alpha1.Machine) *bench {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var objs []runtime.Object
	for _, m := range machines {
		kind := metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Machine"}
		objs = append(objs, &metav1.PartialObjectMetadata{TypeMeta: kind, ObjectMeta: m.ObjectMeta})
	}
	b := &bench{T: t, machines: metadatafake.NewSimpleMetadataClient(scheme, objs...), target: fake.NewClientset(n), view: objectcache.NewView()}
	b.cluster = target.New(b.target)
	c, err := New(Config{
		Metadata: b.machines, View: b.view, Cluster: b.cluster, Namespace: served, Clock: clock.RealClock{}, Workers: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	go c.Run(t.Context())
	return b
}

// expect waits until everybody rests, and looks at the Node: nobody but us may have touched it.
func (b *bench) expect(goes bool) {
	b.Helper()
	synctest.Wait()
	n, err := b.target.CoreV1().Nodes().Get(b.Context(), "m", metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	if held := slices.Contains(n.Finalizers, v1alpha1.NodeFinalizerName); held == goes || !slices.Contains(n.Finalizers, others) {
		b.Errorf("its finalizers are %v, and it is to go: %t", n.Finalizers, goes)
	}
}
