package lifecycle

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/preserve"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// keptWorlds is how many are generated, with the seeds 1, 2, 3 …: a failure names its own.
const keptWorlds = 2000

// kept is a machine with a Node that people preserve, release, break and mend, while a MachineSet
// waits to replace it. Our passes are broken off anywhere, also between the two halves of a write
// of the machine.
type kept struct {
	*testing.T

	random      *rand.Rand
	now         time.Time
	machine     *v1alpha1.Machine
	node        *corev1.Node // nil when it is gone
	steady      bool         // nothing is broken off
	drained     bool         // since the machine has failed last
	until       *metav1.Time // of the preservation that goes on
	over        bool         // the time of the failed machine was over once
	replaceable bool         // the MachineSet may have decided to replace it
}

// TestPreservedMachinesStay checks after each write what a MachineSet would decide about the
// machine and what the Node claims, and in the end that Node and machine agree.
func TestPreservedMachinesStay(t *testing.T) {
	for seed := range uint64(worlds.Some(keptWorlds)) {
		t.Run(fmt.Sprintf("seed %d", seed+1), func(t *testing.T) {
			w := fresh(created, joined, node())
			w.Machine.Annotations = map[string]string{}
			k := &kept{T: t, random: rand.New(rand.NewPCG(seed+1, 0)), now: born, machine: w.Machine, node: w.Node.Node}
			k.node.Annotations["his"] = "own"
			for range k.random.IntN(40) {
				k.happen()
				k.replaceable = k.replaced()
				k.pass()
			}
			k.settle()
		})
	}
}

func (k *kept) chance(n int) bool { return k.random.IntN(n) == 0 }

// happen simulates the actions of others between two passes.
func (k *kept) happen() {
	values := []string{v1alpha1.PreserveNow, v1alpha1.PreserveWhenFailed, v1alpha1.PreserveAuto, v1alpha1.PreserveFalse, "", "nonsense"}
	value := values[k.random.IntN(len(values))]
	k.machine = k.machine.DeepCopy()
	if k.node != nil {
		k.node = k.node.DeepCopy()
	}
	switch k.random.IntN(9) {
	case 0:
		set(k.machine.Annotations, value)
	case 1:
		if k.node != nil && value != v1alpha1.PreserveAuto {
			set(k.node.Annotations, value)
		}
	case 2:
		k.now = k.now.Add(time.Duration(k.random.IntN(60)) * time.Hour)
	case 3: // it fails, without our doing: the causes are in other tests
		k.ready(corev1.ConditionFalse)
	case 4:
		k.ready(corev1.ConditionTrue)
	case 5:
		if k.chance(4) {
			k.node = nil
		}
	case 6:
		if k.node == nil {
			k.node = &corev1.Node{Spec: corev1.NodeSpec{ProviderID: "cloud:///i-1"}}
			k.node.Name, k.node.Annotations = "m", map[string]string{"his": "own"}
			k.node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		}
	case 7:
		k.machine.Spec.NodeTemplateSpec.Labels = map[string]string{"pool": fmt.Sprint(k.random.IntN(3))}
	case 8:
		if k.node != nil {
			k.node.Spec.Taints = slices.DeleteFunc(k.node.Spec.Taints, func(corev1.Taint) bool { return true })
			k.drained = false
		}
	}
}

func (k *kept) ready(status corev1.ConditionStatus) {
	if k.node == nil {
		return
	}
	for i := range k.node.Status.Conditions {
		if c := &k.node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			c.Status = status
		}
	}
}

func set(annotations map[string]string, value string) {
	if annotations[v1alpha1.AnnotationPreserve] = value; value == "" {
		delete(annotations, v1alpha1.AnnotationPreserve)
	}
}

// failUnhealthy is the verdict of health that an unhealthy machine has failed. It is put in the
// place of the machine's waiting, so that updateNode has to do with it.
func (k *kept) failUnhealthy(w World, v Verdict) Verdict {
	if v.Do == Rest && w.Machine.Status.CurrentStatus.Phase == v1alpha1.MachineUnknown {
		m := w.Machine
		if v.Machine != nil {
			m = v.Machine
		}
		v.Machine = m.DeepCopy()
		setPhase(w, v.Machine, v1alpha1.MachineFailed, false)
	}
	return v
}

func (k *kept) pass() {
	w := World{
		Now: k.now, Limits: limits(), Machine: k.machine, Proven: ownVM.ProviderID, Token: TokenAbsent,
		Class: ClassFact{Class: &v1alpha1.MachineClass{}},
	}
	switch {
	case k.node == nil || k.chance(5):
	case k.node.Labels[v1alpha1.LabelMachineName] == "":
		w.Node.State = NodeNamed
	default:
		w.Node = NodeFact{State: NodePresent, Node: k.node}
	}
	for range 32 {
		v := updateNode(w, k.failUnhealthy(w, decideHealth(w)))
		if !k.steady && k.chance(10) {
			return
		}
		switch v.Do { //nolint:exhaustive // a machine that has joined needs no more
		case FindNode:
			w.Node = NodeFact{State: NodeAbsent}
			if k.node != nil {
				w.Node = NodeFact{State: NodePresent, Node: k.node}
			}
		case FindNodeClaims:
			w.NodeClaims = OtherClaims{Read: true}
		case ClaimNode, PatchNode:
			k.node = patched(k, k.node, v.Patch)
			w.Node.Node = k.node
			k.look()
		case DrainPreserved:
			drains := []preserve.Drain{preserve.DrainRunning, preserve.DrainFailed, preserve.DrainDone}
			w.PreservedDrain.State = drains[k.random.IntN(len(drains))]
			if k.steady {
				w.PreservedDrain.State = preserve.DrainDone
			}
			k.drained = w.PreservedDrain.State == preserve.DrainDone
		case Save, Rest:
			if v.Machine != nil && !k.store(v.Machine) {
				return
			}
			if w.Machine = k.machine; v.Do == Rest {
				return
			}
		default:
			k.Fatalf("unexpected %s", v.Do)
		}
	}
	k.Fatalf("32 actions and no end: %+v", w.Machine.Status)
}

// store writes the machine, metadata first, and says whether it came to the status.
func (k *kept) store(m *v1alpha1.Machine) bool {
	half := m.DeepCopy()
	half.Status = k.machine.Status
	k.machine = half
	k.look()
	if !k.steady && k.chance(10) {
		return false
	}
	k.machine = m
	k.look()
	return true
}

// asked returns the request of users for the machine, as MCM defines it: the Node's annotation has
// precedence if it exists, or did.
func (k *kept) asked() string {
	own, annotated := k.machine.Annotations[v1alpha1.AnnotationPreserve]
	last := k.machine.Annotations[v1alpha1.AnnotationLastAppliedNodePreserveValue]
	if k.node == nil {
		if annotated {
			return own
		}
		return last
	}
	if requested := k.node.Annotations[v1alpha1.AnnotationPreserve]; requested != "" || last != "" {
		return requested
	}
	return own
}

func wanted(value string) bool {
	return value == v1alpha1.PreserveNow || value == v1alpha1.PreserveWhenFailed || value == v1alpha1.PreserveAuto
}

// replaced is the rule by which MachineSets replace machines.
func (k *kept) replaced() bool {
	return k.machine.Status.CurrentStatus.Phase == v1alpha1.MachineFailed && !machinefacts.IsKept(k.machine, k.now)
}

// look checks what stands after each write.
func (k *kept) look() {
	s := k.machine.Status.CurrentStatus
	failed := s.Phase == v1alpha1.MachineFailed
	expired := s.PreserveExpiryTime != nil && !s.PreserveExpiryTime.After(k.now)
	if k.replaceable = k.replaceable && failed; wanted(k.asked()) && !expired && !k.replaceable && k.replaced() {
		k.Fatalf("it is replaced, and %q was asked for: %+v %v", k.asked(), s, k.machine.Annotations)
	}
	k.over = k.over && failed
	k.drained = k.drained && k.node != nil && k.taint()
	if k.over && failed && !k.replaced() && !wanted(k.asked()) {
		k.Fatalf("its time was over, and it is preserved again: %+v", s)
	}
	k.over = k.over || failed && expired
	if k.until != nil && s.PreserveExpiryTime != nil && !k.until.Equal(s.PreserveExpiryTime) {
		k.Fatalf("it was preserved until %s, and is until %s", k.until, s.PreserveExpiryTime)
	}
	k.until = s.PreserveExpiryTime
	if k.node == nil || k.node.Annotations["his"] != "own" {
		if k.node != nil {
			k.Fatalf("what is his is gone: %v", k.node.Annotations)
		}
		return
	}
	if failed && k.taint() && k.condition() == corev1.ConditionTrue && !k.drained {
		k.Fatal("the Node has the condition of a drained one, and is not drained")
	}
}

func (k *kept) taint() bool {
	return slices.ContainsFunc(k.node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintPreserved })
}

func (k *kept) condition() corev1.ConditionStatus {
	for _, c := range k.node.Status.Conditions {
		if c.Type == v1alpha1.NodePreserved {
			return c.Status
		}
	}
	return ""
}

// settle lets passes come to their end, and compares machine and Node.
func (k *kept) settle() {
	k.steady = true
	for range 3 {
		k.pass()
	}
	before, on := k.machine, k.node
	k.pass()
	if k.node != on || !maps.Equal(before.Annotations, k.machine.Annotations) {
		k.Fatal("it does not come to rest")
	}
	s := k.machine.Status.CurrentStatus
	failed, is := s.Phase == v1alpha1.MachineFailed, s.PreserveExpiryTime != nil && s.PreserveExpiryTime.After(k.now)
	if value := k.asked(); !is && (value == v1alpha1.PreserveNow || wanted(value) && failed) {
		k.Fatalf("%q is asked for, and it is not preserved: %+v", value, s)
	}
	if !failed && s.PreserveExpiryTime != nil && !is {
		k.Fatalf("its time is over, and it keeps it: %+v", s)
	}
	if k.node == nil {
		return
	}
	if ours := k.node.Annotations[v1alpha1.AnnotationScaleDownDisabledByUs] == "true"; ours != is {
		k.Fatalf("preserved: %v, annotations of the Node %v", is, k.node.Annotations)
	}
	if k.taint() != (is && failed) || (k.condition() == corev1.ConditionTrue) != is {
		k.Fatalf("preserved: %v, failed: %v, taints %v, condition %s", is, failed, k.node.Spec.Taints, k.condition())
	}
	if k.node.Labels["pool"] != k.machine.Spec.NodeTemplateSpec.Labels["pool"] {
		k.Fatalf("labels of the Node %v", k.node.Labels)
	}
}
