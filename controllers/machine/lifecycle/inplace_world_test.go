package lifecycle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/inplace"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/nodesync"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// updatedWorlds is how many are generated, with the seeds 1, 2, 3 …: a failure names its own.
const updatedWorlds = 1000

// updating is a machine with a Node that a rollout has updated in place by an agent, while the Node
// fails and recovers. The machine is preserved all the time. Our passes are broken off anywhere,
// and see the Node as it was before.
type updating struct {
	*testing.T

	random  *rand.Rand
	now     time.Time
	machine *v1alpha1.Machine
	node    *corev1.Node
	before  *corev1.Node // as a cache that is late shows it
	version int
	pods    int
	inOld   bool // the machine is in its old set
	steady  bool // nothing fails, and nothing is broken off
}

// TestUpdatesInPlaceEndRight checks after each write that the agent does not begin before the Node
// is empty and has a deadline, that nothing is forgotten before it has had its effect, and in the
// end that an update that was asked for is done.
func TestUpdatesInPlaceEndRight(t *testing.T) {
	reached := map[string]int{}
	for seed := range uint64(worlds.Some(updatedWorlds)) {
		t.Run(fmt.Sprintf("seed %d", seed+1), func(t *testing.T) {
			w := fresh(created, joined, node())
			metav1.SetMetaDataAnnotation(&w.Machine.ObjectMeta, v1alpha1.AnnotationPreserve, v1alpha1.PreserveNow)
			w.Machine.Status.CurrentStatus.PreserveExpiryTime = &metav1.Time{Time: born.Add(1000 * time.Hour)}
			u := &updating{
				T: t, random: rand.New(rand.NewPCG(seed+1, 0)), now: born, machine: w.Machine, node: w.Node.Node, before: w.Node.Node, inOld: true,
			}
			for range u.random.IntN(60) {
				u.happen()
				u.pass()
				reached[string(u.machine.Status.CurrentStatus.Phase)]++
				reached[machinefacts.InPlaceStage(u.node)]++
			}
			u.settle()
		})
	}
	for _, what := range []string{
		string(v1alpha1.MachineInPlaceUpdating), string(v1alpha1.MachineInPlaceUpdateSuccessful), string(v1alpha1.MachineInPlaceUpdateFailed),
		v1alpha1.NodeReasonCandidateForUpdate, v1alpha1.NodeReasonSelectedForUpdate, v1alpha1.NodeReasonDrainSuccessful,
		v1alpha1.NodeReasonReadyForUpdate,
		v1alpha1.NodeReasonUpdateSuccessful, v1alpha1.NodeReasonUpdateFailed,
	} {
		if reached[what] == 0 {
			t.Errorf("no world has come to rest at %s: the worlds are too small", what)
		}
	}
}

func (u *updating) chance(n int) bool { return u.random.IntN(n) == 0 }

// change writes the Node as another client.
func (u *updating) change(change func(n *corev1.Node)) {
	u.before = u.node
	u.node = u.node.DeepCopy()
	change(u.node)
	u.version++
	u.node.ResourceVersion = fmt.Sprint(u.version)
}

func (u *updating) label(key, value string) {
	u.change(func(n *corev1.Node) {
		if n.Labels[key] = value; value == "" {
			delete(n.Labels, key)
		}
	})
}

func (u *updating) ready(status corev1.ConditionStatus) {
	u.change(func(n *corev1.Node) {
		for i := range n.Status.Conditions {
			if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
				c.Status = status
			}
		}
	})
}

// happen simulates the actions of others between two passes.
func (u *updating) happen() {
	u.now = u.now.Add(time.Duration(u.random.IntN(120)) * time.Second)
	switch u.random.IntN(13) {
	case 0:
		u.rollout()
	case 12: // the autoscaler had cordoned the Node, and does not want it gone any more
		u.machine = u.machine.DeepCopy()
		metav1.SetMetaDataAnnotation(&u.machine.ObjectMeta, v1alpha1.AnnotationUncordonAt, u.now.UTC().Format(time.RFC3339))
	case 1:
		u.label(v1alpha1.LabelSelectedForUpdate, "true")
	case 2: // a user withdraws the request
		if u.chance(3) {
			u.label(v1alpha1.LabelSelectedForUpdate, "")
		}
	case 3, 4:
		u.agent()
	case 5:
		if u.node.Labels[v1alpha1.LabelUpdateResult] == v1alpha1.UpdateResultFailed { // try it again
			u.label(v1alpha1.LabelUpdateResult, "")
		}
	case 6:
		if !u.node.Spec.Unschedulable {
			u.pods++
		}
	case 7:
		if u.chance(3) {
			u.ready(corev1.ConditionUnknown)
		}
	case 8, 9:
		u.ready(corev1.ConditionTrue)
	case 10:
		u.transfer()
	case 11:
		if u.chance(3) {
			u.now = u.now.Add(30 * time.Minute)
		}
	}
}

// rollout makes the Node a candidate, as the controllers of MachineDeployments do with those of an
// old set.
func (u *updating) rollout() {
	if u.node.Labels[v1alpha1.LabelCandidateForUpdate] == "" && u.node.Labels[v1alpha1.LabelUpdateResult] == "" {
		u.inOld = true
		u.label(v1alpha1.LabelCandidateForUpdate, "true")
	}
}

// agent updates a Node that is ready for it, or fails.
func (u *updating) agent() {
	if machinefacts.InPlaceStage(u.node) != v1alpha1.NodeReasonReadyForUpdate || u.node.Labels[v1alpha1.LabelUpdateResult] != "" {
		return
	}
	switch outcome := u.random.IntN(4); {
	case !u.steady && outcome == 0:
		u.change(func(n *corev1.Node) {
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.AnnotationUpdateFailedReason, "why")
		})
		u.label(v1alpha1.LabelUpdateResult, v1alpha1.UpdateResultFailed)
	case !u.steady && outcome == 1:
		u.ready(corev1.ConditionFalse)
	default:
		u.label(v1alpha1.LabelUpdateResult, v1alpha1.UpdateResultSuccessful)
	}
}

// transfer moves the machine to its new set, as the controllers of MachineDeployments do.
func (u *updating) transfer() {
	isUpdated := slices.ContainsFunc(u.machine.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == v1alpha1.NodeInPlaceUpdate && c.Reason == v1alpha1.NodeReasonUpdateSuccessful
	})
	if isUpdated && u.node.Labels[v1alpha1.LabelUpdateResult] == v1alpha1.UpdateResultSuccessful &&
		u.machine.Status.CurrentStatus.Phase != v1alpha1.MachineInPlaceUpdating {
		u.inOld = false
	}
}

func (u *updating) pass() {
	w := World{
		Now: u.now, Limits: limits(), Machine: u.machine, Token: TokenAbsent, Class: ClassFact{Class: &v1alpha1.MachineClass{}},
		Node: NodeFact{State: NodePresent, Node: u.node},
	}
	switch sight := u.random.IntN(5); {
	case u.steady:
	case sight == 0:
		w.Node = NodeFact{}
	case sight == 1:
		w.Node.Node = u.before
	}
	if u.steady || !u.chance(5) {
		w.Rollout = &nodesync.Rollout{IsOld: u.inOld}
	}
	for range 32 {
		v := Decide(w)
		if !u.steady && u.chance(12) {
			return
		}
		switch v.Do { //nolint:exhaustive // a machine that has joined needs no more
		case FindNode:
			w.Node = NodeFact{State: NodePresent, Node: u.node, Live: true}
		case ClaimNode, PatchNode:
			if w.Node.Node != u.node && v.Patch.AsRead {
				w.Node = NodeFact{State: NodePresent, Node: u.node, Live: true}
				continue
			}
			u.patch(v.Patch)
			w.Node.Node = u.node
		case DrainForUpdate:
			u.drain(&w)
		case Save, Rest:
			if v.Machine != nil {
				u.store(v.Machine)
				w.Machine = u.machine
			}
			if v.Do == Rest {
				return
			}
		default:
			u.Fatalf("unexpected %s", v.Do)
		}
	}
	u.Fatalf("32 actions and no end: %+v, %v", w.Machine.Status, u.node.Status.Conditions)
}

// drain cordons the Node and has pods leave, all of them when all is well.
func (u *updating) drain(w *World) {
	if machinefacts.InPlaceStage(w.Node.Node) != v1alpha1.NodeReasonSelectedForUpdate {
		u.Fatalf("a Node is drained that says %q", machinefacts.InPlaceStage(w.Node.Node))
	}
	if !u.node.Spec.Unschedulable {
		u.change(func(n *corev1.Node) { n.Spec.Unschedulable = true })
		w.Node.Node = u.node
	}
	if leave := u.random.IntN(u.pods + 1); u.steady || leave == u.pods {
		u.pods = 0
		w.UpdateDrain = drain.Report{State: drain.Drained, Text: "Node m is drained"}
		return
	}
	u.pods--
	w.UpdateDrain = drain.Report{State: drain.Draining, Text: fmt.Sprintf("%d pods", u.pods), IsStuck: u.chance(2), Wake: time.Minute}
}

// patch writes the Node, and checks what that says.
func (u *updating) patch(patch *nodesync.Patch) {
	was := u.node
	is := patched(u, was, patch)
	u.change(func(n *corev1.Node) { *n = *is })
	phase := u.machine.Status.CurrentStatus.Phase
	isNew := machinefacts.InPlaceStage(was) != machinefacts.InPlaceStage(u.node)
	switch stage := machinefacts.InPlaceStage(u.node); {
	case isNew && stage == v1alpha1.NodeReasonDrainSuccessful && (u.pods > 0 || !u.node.Spec.Unschedulable):
		u.Fatalf("the Node has the condition of a drained one: %d pods, cordoned: %v", u.pods, u.node.Spec.Unschedulable)
	case isNew && stage == v1alpha1.NodeReasonReadyForUpdate && (phase != v1alpha1.MachineInPlaceUpdating || u.pods > 0):
		u.Fatalf("the Node is ready for the agent: the machine is %s, %d pods", phase, u.pods)
	}
	if was.Labels[v1alpha1.LabelUpdateResult] != "" && u.node.Labels[v1alpha1.LabelUpdateResult] == "" &&
		(u.inOld || phase != v1alpha1.MachineRunning) {
		u.Fatalf("the result is forgotten: the machine is %s, in its old set: %v", phase, u.inOld)
	}
	isAtWork := machinefacts.InPlaceStage(was) == v1alpha1.NodeReasonReadyForUpdate && inplace.Result(was) == ""
	if was.Spec.Unschedulable && !u.node.Spec.Unschedulable && isAtWork {
		u.Fatal("pods may come while the agent is at work")
	}
}

// store writes the machine, and checks what becomes of it.
func (u *updating) store(m *v1alpha1.Machine) {
	was := u.machine.Status.CurrentStatus.Phase
	u.machine = m
	switch is := m.Status.CurrentStatus.Phase; {
	case is == v1alpha1.MachineFailed:
		u.Fatalf("the machine has failed without a disruption: it was %s", was)
	case is == v1alpha1.MachineInPlaceUpdating && was != is && u.pods > 0:
		u.Fatalf("the machine records its update: %d pods", u.pods)
	}
	if m.Status.CurrentStatus.PreserveExpiryTime == nil {
		u.Fatalf("that the machine is preserved was forgotten when it became %s", m.Status.CurrentStatus.Phase)
	}
}

// settle runs all controllers until they rest, and expects the update to be complete.
func (u *updating) settle() {
	u.steady = true
	u.rollout()
	isCandidate := u.node.Labels[v1alpha1.LabelCandidateForUpdate] != ""
	for range 8 {
		if u.node.Labels[v1alpha1.LabelUpdateResult] == v1alpha1.UpdateResultFailed {
			u.label(v1alpha1.LabelUpdateResult, "")
		}
		if u.node.Labels[v1alpha1.LabelCandidateForUpdate] != "" && u.node.Labels[v1alpha1.LabelSelectedForUpdate] == "" {
			u.label(v1alpha1.LabelSelectedForUpdate, "true")
		}
		u.now = u.now.Add(time.Second)
		u.ready(corev1.ConditionTrue)
		u.pass()
		u.agent()
		u.pass()
		u.transfer()
	}
	node := u.node
	u.pass()
	if u.node != node {
		u.Error("it does not come to rest")
	}
	if u.machine.Status.CurrentStatus.Phase != v1alpha1.MachineRunning {
		u.Errorf("the machine is %+v", u.machine.Status)
	}
	if !isCandidate {
		return
	}
	for _, key := range []string{v1alpha1.LabelCandidateForUpdate, v1alpha1.LabelUpdateResult, v1alpha1.LabelSelectedForUpdate} {
		if _, left := u.node.Labels[key]; left {
			u.Errorf("the Node still has the label %s", key)
		}
	}
	awaits := slices.ContainsFunc(u.node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintCriticalComponentsNotReady })
	if u.node.Spec.Unschedulable || !awaits || machinefacts.InPlaceStage(u.node) != v1alpha1.NodeReasonUpdateSuccessful {
		u.Errorf("the Node is %s: cordoned: %v, awaits components: %v", machinefacts.InPlaceStage(u.node), u.node.Spec.Unschedulable, awaits)
	}
}
