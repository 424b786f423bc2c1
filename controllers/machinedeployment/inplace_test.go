package machinedeployment

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// nodeServer is a target cluster with the Node of machine m.
type nodeServer struct {
	*apiserver.Server

	isLate bool // the cache does not show changes
}

// withNode gives the bench the target cluster.
func withNode(n *nodeServer) func(*bench, *Config) {
	return func(_ *bench, cfg *Config) {
		n.Server = apiserver.Recording(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "m-node", Labels: map[string]string{v1alpha1.LabelMachineName: "m"}},
		})
		cluster := target.New(n.Core())
		apiserver.Follow(n.Server, "nodes", func(node *corev1.Node, _ bool) {
			if !n.isLate {
				cluster.Nodes.Apply(node, false)
			}
		})
		cfg.Targets = target.Single{Cluster: cluster}
	}
}

func (n *nodeServer) node() *corev1.Node {
	return apiserver.Read[corev1.Node](n.Server, "nodes", "", "m-node")
}

func (n *nodeServer) change(f func(node *corev1.Node)) {
	apiserver.Change(n.Server, "nodes", "", "m-node", f)
}

// is records how far the Node is, as the machine controller does.
func (n *nodeServer) is(stage string) {
	n.change(func(node *corev1.Node) {
		node.Status.Conditions = []corev1.NodeCondition{{Type: v1alpha1.NodeInPlaceUpdate, Status: corev1.ConditionTrue, Reason: stage}}
	})
}

// createInPlace creates a MachineDeployment whose one machine runs, on its Node.
func (b *bench) createInPlace(n *nodeServer) {
	b.Helper()
	one, none := intstr.FromInt32(1), intstr.FromInt32(0)
	b.create(func(d *v1alpha1.MachineDeploymentSpec) {
		d.Replicas = 1
		d.Strategy = v1alpha1.MachineDeploymentStrategy{
			Type: v1alpha1.InPlaceUpdateMachineDeploymentStrategyType,
			InPlaceUpdate: &v1alpha1.InPlaceUpdateMachineDeployment{
				UpdateConfiguration: v1alpha1.UpdateConfiguration{MaxSurge: &none, MaxUnavailable: &one},
				OrchestrationType:   v1alpha1.OrchestrationTypeAuto,
			},
		}
	})
	set := b.mine()[0]
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
		Name: "m", Namespace: "n", Labels: set.Spec.Template.Labels, Finalizers: []string{v1alpha1.FinalizerName},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, v1alpha1.SchemeGroupVersion.WithKind("MachineSet"))},
	}, Spec: set.Spec.Template.Spec}
	m = apiserver.Add(b.server, m)
	n.change(func(node *corev1.Node) {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, v1alpha1.AnnotationMachine, v1alpha1.RefOf(m).String())
	})
	b.patchMachine(`{"metadata":{"labels":{"node":"m-node","machineslot":"7"}}}`)
	b.phase(v1alpha1.MachineRunning)
	n.is("")
	b.pass(time.Minute)
}

func (b *bench) patchMachine(content string, subresource ...string) {
	b.Helper()
	b.server.Merge("machines", "n", "m", content, subresource...)
}

func (b *bench) phase(phase v1alpha1.MachinePhase) {
	b.Helper()
	b.patchMachine(`{"status":{"currentStatus":{"phase":"`+string(phase)+`"}}}`, "status")
}

func (b *bench) machine() *v1alpha1.Machine {
	b.Helper()
	m := apiserver.Read[v1alpha1.Machine](b.server, "machines", "n", "m")
	if m == nil {
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
	if n.node().Labels[v1alpha1.LabelSelectedForUpdate] != "true" {
		b.Fatalf("the Node is not selected: %v", n.node())
	}
	b.phase(v1alpha1.MachineInPlaceUpdating)
	n.is(v1alpha1.NodeReasonReadyForUpdate)
	n.change(func(node *corev1.Node) {
		node.Spec.Unschedulable = true
		node.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.UpdateResultSuccessful
	})
	n.is(v1alpha1.NodeReasonUpdateSuccessful)
	b.pass(time.Minute)
	b.phase(v1alpha1.MachineInPlaceUpdateSuccessful)
	b.pass(time.Minute)
	b.phase(v1alpha1.MachineRunning)
	n.change(func(node *corev1.Node) { node.Spec.Taints = nil }) // its critical components are ready
	b.pass(time.Minute)
}

// mustBeUpdated fails unless the machine has come to the set of the new template, and nothing of
// the update is left.
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
	for _, patch := range n.Sent("patch nodes") {
		if !strings.Contains(patch, `"uid":`) || !strings.Contains(patch, `"resourceVersion":`) {
			b.Errorf("the Node is written without preconditions: %s", patch)
		}
	}
	if hasUpdateKeys(n.node()) || n.node().Spec.Unschedulable {
		b.Errorf("Node %v", n.node())
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

// TestAnUpdateInPlaceSucceedsDespiteOtherWriters: another client writes Node and machine all the
// time, and the caches show it later.
func TestAnUpdateInPlaceSucceedsDespiteOtherWriters(t *testing.T) {
	n := &nodeServer{}
	onBench(t, func(b *bench) {
		b.createInPlace(n)
		refused := map[string]int{}
		b.server.Fault(func(r apiserver.Request) error {
			if r.Verb != "patch" || r.Resource != "machines" || r.Subresource != "" {
				return nil
			}
			if refused[r.Name]++; refused[r.Name]%2 == 0 {
				return nil
			}
			return apierrors.NewConflict(schema.GroupResource{Resource: "machines"}, r.Name, errors.New("it has changed"))
		})
		n.isLate = true
		n.change(func(node *corev1.Node) { node.Annotations["heart"] = "beats" })
		n.isLate = false
		b.updateInPlace(n)
		b.mustBeUpdated(n)
		if refused["m"] < 4 || n.node().Annotations["heart"] != "beats" {
			t.Errorf("%d writes of the machine were tried; Node %v", refused["m"], n.node())
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
		if len(b.mine()) != 2 || n.Count("patch nodes") > 0 {
			t.Errorf("%d sets, patches %v", len(b.mine()), n.Sent("patch nodes"))
		}
	}, withNode(n))
}

// TestTheNodeOfAnotherVMIsNotUpdatedInPlace: a kubelet can bind its Node to any machine, and cannot
// change its provider ID.
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
				n.change(func(node *corev1.Node) { node.Spec.ProviderID = "cloud:///1" })
				b.patchMachine(`{"spec":{"providerID":"` + tc.providerID + `"}}`)
				b.patch(`{"spec":{"template":{"metadata":{"annotations":{"changed":"yes"}}}}}`)
				b.pass(time.Minute)
				if n.Count("patch nodes") > 0 != tc.isUpdated {
					t.Errorf("the Node was written: %v", n.Sent("patch nodes"))
				}
			}, withNode(n))
		})
	}
}

// TestWhatOfANodeConcernsItsUpdate: the next Node is selected as soon as the last one is fit for
// pods, and not when a timer ends.
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
