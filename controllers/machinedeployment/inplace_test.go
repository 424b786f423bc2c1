package machinedeployment

import (
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apitest"
	"github.com/machine-controller-fleet/machine-controller-fleet/target"
)

// nodeServer keeps one Node, as the API server of a target cluster does.
type nodeServer struct {
	cluster *target.Cluster

	mu      sync.Mutex
	node    *corev1.Node
	patches []string
}

// withNode gives the bench a target cluster with the Node of machine m.
func withNode(n *nodeServer) func(*bench, *Config) {
	return func(_ *bench, cfg *Config) {
		client := fake.NewClientset()
		n.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: "m-node", UID: "node", ResourceVersion: "1", Labels: map[string]string{v1alpha1.LabelMachineName: "m"},
		}}
		client.PrependReactor("*", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
			node, err := n.answer(action)
			return true, node, err
		})
		n.cluster = target.New(client)
		cfg.Targets = target.Single{Cluster: n.cluster}
	}
}

// answer answers one request.
func (n *nodeServer) answer(action clienttesting.Action) (*corev1.Node, error) {
	patch, ok := action.(clienttesting.PatchAction)
	if !ok {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.node.DeepCopy(), nil
	}
	var about struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(patch.GetPatch(), &about); err != nil {
		return nil, err
	}
	n.mu.Lock()
	n.patches = append(n.patches, string(patch.GetPatch()))
	fits := about.Metadata.UID == n.node.UID && about.Metadata.ResourceVersion == n.node.ResourceVersion
	n.mu.Unlock()
	if !fits {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "m-node", errors.New("it has changed"))
	}
	return n.change(true, func(node *corev1.Node) {
		before, _ := json.Marshal(node)
		after, _ := jsonpatch.MergePatch(before, patch.GetPatch())
		*node = corev1.Node{}
		_ = json.Unmarshal(after, node)
	}), nil
}

// change makes a new version of the Node, and shows it, or does not yet.
func (n *nodeServer) change(shown bool, f func(node *corev1.Node)) *corev1.Node {
	n.mu.Lock()
	node := n.node.DeepCopy()
	f(node)
	version, _ := strconv.Atoi(n.node.ResourceVersion)
	node.ResourceVersion = strconv.Itoa(version + 1)
	n.node = node
	n.mu.Unlock()
	if shown {
		n.cluster.Nodes.Apply(node, false)
	}
	return node.DeepCopy()
}

// is records how far the Node is, as the machine controller does.
func (n *nodeServer) is(stage string) {
	n.change(true, func(node *corev1.Node) {
		node.Status.Conditions = []corev1.NodeCondition{{Type: v1alpha1.NodeInPlaceUpdate, Status: corev1.ConditionTrue, Reason: stage}}
	})
}

// createInPlace makes a MachineDeployment whose one machine runs, on its Node.
func (b *bench) createInPlace(n *nodeServer) {
	b.Helper()
	one, none := intstr.FromInt32(1), intstr.FromInt32(0)
	b.create(func(d *v1alpha1.MachineDeploymentSpec) {
		d.Replicas = 1
		d.Strategy = v1alpha1.MachineDeploymentStrategy{
			Type: v1alpha1.InPlaceUpdateMachineDeploymentStrategyType,
			InPlaceUpdate: &v1alpha1.InPlaceUpdateMachineDeployment{
				UpdateConfiguration: v1alpha1.UpdateConfiguration{MaxSurge: &none, MaxUnavailable: &one}, OrchestrationType: v1alpha1.OrchestrationTypeAuto,
			},
		}
	})
	set := b.mine()[0]
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
		Name: "m", Namespace: "n", Labels: set.Spec.Template.Labels, Finalizers: []string{v1alpha1.FinalizerName},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, v1alpha1.SchemeGroupVersion.WithKind("MachineSet"))},
	}, Spec: set.Spec.Template.Spec}
	m, err := b.server.Client().Machines("n").Create(b.Context(), m, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	n.change(true, func(node *corev1.Node) {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, v1alpha1.AnnotationMachine, v1alpha1.RefOf(m).String())
	})
	b.patchMachine(`{"metadata":{"labels":{"node":"m-node","machineslot":"7"}}}`)
	b.phase(v1alpha1.MachineRunning)
	n.is("")
	b.pass(time.Minute)
}

func (b *bench) patchMachine(content string, subresource ...string) {
	b.Helper()
	_, err := b.server.Client().Machines("n").Patch(b.Context(), "m", types.MergePatchType, []byte(content), metav1.PatchOptions{}, subresource...)
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) phase(phase v1alpha1.MachinePhase) {
	b.Helper()
	b.patchMachine(`{"status":{"currentStatus":{"phase":"`+string(phase)+`"}}}`, "status")
}

func (b *bench) machine() *v1alpha1.Machine {
	b.Helper()
	m, ok := b.server.Object("machines", "n", "m").(*v1alpha1.Machine)
	if !ok {
		b.Fatal("the machine is gone")
	}
	return m
}

// updateInPlace has the one machine updated in place.
func (b *bench) updateInPlace(n *nodeServer) {
	b.Helper()
	b.patch(`{"spec":{"template":{"metadata":{"annotations":{"changed":"yes"}}}}}`)
	b.pass(time.Minute)
	n.is(v1alpha1.NodeReasonCandidateForUpdate)
	b.pass(time.Minute)
	if n.node.Labels[v1alpha1.LabelSelectedForUpdate] != "true" {
		b.Fatalf("the Node is not selected: %v", n.node)
	}
	b.phase(v1alpha1.MachineInPlaceUpdating)
	n.is(v1alpha1.NodeReasonReadyForUpdate)
	n.change(true, func(node *corev1.Node) {
		node.Spec.Unschedulable = true
		node.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.UpdateResultSuccessful
	})
	n.is(v1alpha1.NodeReasonUpdateSuccessful)
	b.pass(time.Minute)
	b.phase(v1alpha1.MachineInPlaceUpdateSuccessful)
	b.pass(time.Minute)
	b.phase(v1alpha1.MachineRunning)
	n.change(true, func(node *corev1.Node) { node.Spec.Taints = nil }) // its critical components are ready
	b.pass(time.Minute)
}

// mustBeUpdated fails unless the machine has come to the set of the new template, and nothing of the update is left.
func (b *bench) mustBeUpdated(n *nodeServer) {
	b.Helper()
	d, m := b.deployment(), b.machine()
	for _, set := range b.mine() {
		isNew := set.Spec.Template.Annotations["changed"] == "yes"
		if isNew != metav1.IsControlledBy(m, set) || isNew && set.Spec.Replicas != 1 || !isNew && set.Spec.Replicas != 0 {
			b.Errorf("machine %v; set %v", m.ObjectMeta, set)
		}
		if isNew && m.Labels[v1alpha1.LabelMachineTemplateHash] != set.Labels[v1alpha1.LabelMachineTemplateHash] {
			b.Errorf("labels %v do not fit set %v", m.Labels, set.Labels)
		}
	}
	if m.Labels["machineslot"] != "7" || m.Labels[v1alpha1.LabelUpdateResult] != "" || m.Annotations["changed"] != "yes" {
		b.Errorf("machine %v", m.ObjectMeta)
	}
	if hasUpdateKeys(n.node) || n.node.Spec.Unschedulable {
		b.Errorf("Node %v", n.node)
	}
	for _, c := range d.Status.Conditions {
		if c.Type == v1alpha1.MachineDeploymentProgressing && c.Reason != v1alpha1.ReasonNewMachineSetAvailable {
			b.Errorf("%s is %s", c.Type, c.Reason)
		}
	}
}

// playInPlace updates a machine in place, and then has the deployment looked at many times.
func playInPlace(b *bench) {
	n := b.nodes
	b.createInPlace(n)
	b.updateInPlace(n)
	b.touches()
	b.mustBeUpdated(n)
}

// TestAnUpdateInPlaceAgainstTheOddsOfWriting: another client writes Node and machine all the time, and the caches show it later.
func TestAnUpdateInPlaceAgainstTheOddsOfWriting(t *testing.T) {
	n := &nodeServer{}
	onBench(t, func(b *bench) {
		b.createInPlace(n)
		refused := map[string]int{}
		b.server.Refuse(func(r apitest.Request) error {
			if r.Verb != "patch" || r.Resource != "machines" || r.Subresource != "" {
				return nil
			}
			if refused[r.Name]++; refused[r.Name]%2 == 0 {
				return nil
			}
			return apierrors.NewConflict(schema.GroupResource{Resource: "machines"}, r.Name, errors.New("it has changed"))
		})
		n.change(false, func(node *corev1.Node) { node.Annotations["heart"] = "beats" })
		b.updateInPlace(n)
		b.mustBeUpdated(n)
		if refused["m"] < 4 || n.node.Annotations["heart"] != "beats" {
			t.Errorf("%d writes of the machine were tried; Node %v", refused["m"], n.node)
		}
	}, withNode(n))
}

// TestNodesAreNotWrittenWhereNothingIsUpdatedInPlace: with another strategy no Node is written.
func TestNodesAreNotWrittenWhereNothingIsUpdatedInPlace(t *testing.T) {
	n := &nodeServer{}
	onBench(t, func(b *bench) {
		b.createInPlace(n)
		b.patch(`{"spec":{"strategy":{"type":"RollingUpdate","inPlaceUpdate":null,"rollingUpdate":{"maxSurge":1,"maxUnavailable":0}}}}`)
		b.patch(`{"spec":{"template":{"metadata":{"annotations":{"changed":"yes"}}}}}`)
		b.pass(time.Minute)
		if len(b.mine()) != 2 || len(n.patches) > 0 {
			t.Errorf("%d sets, patches %v", len(b.mine()), n.patches)
		}
	}, withNode(n))
}

// TestTheNodeOfAnotherVMIsNotUpdatedInPlace: a kubelet can bind its Node to any machine, and cannot change its provider ID.
func TestTheNodeOfAnotherVMIsNotUpdatedInPlace(t *testing.T) {
	for name, tc := range map[string]struct {
		providerID string // of the machine
		isUpdated  bool
	}{
		"the VM is the machine's": {"cloud:///1", true},
		"the VM is another one":   {"cloud:///2", false},
	} {
		t.Run(name, func(t *testing.T) {
			n := &nodeServer{}
			onBench(t, func(b *bench) {
				b.createInPlace(n)
				n.change(true, func(node *corev1.Node) { node.Spec.ProviderID = "cloud:///1" })
				b.patchMachine(`{"spec":{"providerID":"` + tc.providerID + `"}}`)
				b.patch(`{"spec":{"template":{"metadata":{"annotations":{"changed":"yes"}}}}}`)
				b.pass(time.Minute)
				if len(n.patches) > 0 != tc.isUpdated {
					t.Errorf("the Node was written: %v", n.patches)
				}
			}, withNode(n))
		})
	}
}

// TestWhatOfANodeConcernsItsUpdate: the next Node is selected as soon as the last one is fit for pods, and not when a timer ends.
func TestWhatOfANodeConcernsItsUpdate(t *testing.T) {
	for name, tc := range map[string]struct {
		change   func(*corev1.Node)
		concerns bool
	}{
		"a heartbeat": {func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeReady, LastHeartbeatTime: metav1.Now()})
		}, false},
		"a foreign taint": {func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "his", Effect: corev1.TaintEffectNoSchedule})
		}, false},
		"its components are ready": {func(n *corev1.Node) { n.Spec.Taints = nil }, true},
		"it is selected":           {func(n *corev1.Node) { n.Labels = map[string]string{v1alpha1.LabelSelectedForUpdate: "true"} }, true},
		"its stage": {func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: v1alpha1.NodeInPlaceUpdate, Reason: v1alpha1.NodeReasonUpdateSuccessful}}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			before := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{
				{Key: v1alpha1.TaintCriticalComponentsNotReady, Effect: corev1.TaintEffectNoSchedule},
			}}}
			after := before.DeepCopy()
			tc.change(after)
			if got := concernsUpdate(before, after); got != tc.concerns {
				t.Errorf("it concerns the update: %v", got)
			}
		})
	}
}
