package lifecycle

import (
	"cmp"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/preserve"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// life is a small model of all that a machine has to do with. Passes run over it as the controller
// runs them, and are broken off anywhere.
type life struct {
	t             *rapid.T
	now           time.Time
	machine       *v1alpha1.Machine // as stored; nil when it is gone
	hasFinalizers bool
	vms           int  // at the cloud, with this machine's UID
	created       int  // VMs ever created
	left          bool // at the cloud, by a create that failed part-way: a network interface that only DeleteMachine removes
	node          *corev1.Node
	token         bool
	faulty        bool
	cloud         func(w *World, do Action) bool // answers in the place of the cloud, where it returns true; nil without one

	pods       int    // on the Node
	drained    bool   // this process knows that the drain has ended
	proven     bool   // this process knows that the VM has the machine's UID
	named      bool   // the machine names its VM
	ending     VMFact // that this process knows of
	disruption DisruptionFact
	broken     bool // the pass has ended with an error

	lags bool      // the cache does not show the Node in this pass, and reports when it does
	due  time.Time // when the controller looks at the machine next; zero means when something happens
}

// enqueue requests a pass: something has happened that the controller observes.
func (l *life) enqueue() { l.due = l.now }

// ownVM is the machine's.
var ownVM = driver.VM{ProviderID: "cloud:///i-1", NodeName: "m"}

// drainTimeout is how long pods have in the model.
const drainTimeout = 10 * time.Minute

func (l *life) world() World {
	w := World{
		Now: l.now, Limits: limits(), Machine: l.machine,
		Class:  ClassFact{Class: &v1alpha1.MachineClass{}, HasFinalizers: l.hasFinalizers},
		Secret: SecretFact{Read: true, UserData: []byte("boot with <<BOOTSTRAP_TOKEN>>")},
	}
	if l.hasFinalizers {
		w.Class.Class.Finalizers = []string{v1alpha1.FinalizerName}
	}
	if l.drained {
		w.Drain.State = drain.Drained
	}
	if l.proven {
		w.Proven = ownVM.ProviderID
	}
	w.Disruption, w.VM = l.disruption, l.ending
	w.Evidence.MayAsk = l.faulty
	l.see(&w)
	return w
}

// see puts what the cache has of the Node into the world; the cache may not show it yet.
func (l *life) see(w *World) {
	if l.node == nil || NodeName(l.machine) == "" {
		return
	}
	switch labelled := l.node.Labels[v1alpha1.LabelSlot] != ""; {
	case l.faulty && rapid.Bool().Draw(l.t, "cache lags"):
		l.lags = true
	case labelled:
		w.Node = NodeFact{State: NodePresent, Node: l.node}
	default:
		w.Node = NodeFact{State: NodeNamed}
	}
}

// pass runs one pass, and notes when the next one is due. One that was broken off is tried again,
// by this process or the next; and what it has written comes back by a watch, as do the changes of
// others.
func (l *life) pass() {
	machine, node := l.machine, l.node
	l.broken, l.lags, l.due = false, false, time.Time{}
	wake, ended := l.run()
	if wake > 0 {
		l.due = l.now.Add(wake)
	}
	if !ended || l.lags || l.node != node || !apiequality.Semantic.DeepEqual(l.machine, machine) {
		l.enqueue()
	}
}

// run runs one pass. wake is that of its last verdict; ended is false for a pass that was broken
// off.
func (l *life) run() (wake time.Duration, ended bool) {
	w := l.world()
	for range 32 {
		v := Decide(w)
		lived[stepOf(w, v)] = v.Do
		l.mayFail(w, stepOf(w, v))
		w.Failure = nil
		if l.faulty && rapid.IntRange(0, 9).Draw(l.t, "dies") == 0 {
			return 0, false // the process dies before the action
		}
		if v.Machine != nil {
			l.store(v.Machine)
			if l.machine == nil {
				return 0, true
			}
			w.Machine = l.machine
		}
		l.act(&w, v)
		if v.Do == Rest {
			return v.Wake, true
		}
		if l.broken && rapid.Bool().Draw(l.t, "is reported") {
			w.PassError = &PassError{Code: driver.Unavailable, Message: "no answer"}
			v := Decide(w)
			lived[stepOf(w, v)] = v.Do
			l.machine = cmp.Or(v.Machine, l.machine)
		}
		if l.machine == nil || l.broken || l.faulty && rapid.IntRange(0, 9).Draw(l.t, "dies") == 0 {
			return 0, false // the process dies after the action
		}
	}
	l.t.Fatalf("32 actions and no end: %+v", w)
	return 0, false
}

func (l *life) store(m *v1alpha1.Machine) {
	if m.DeletionTimestamp != nil && !slices.Contains(m.Finalizers, v1alpha1.FinalizerName) {
		if l.vms > 0 || l.left {
			l.t.Fatalf("the finalizer of the machine is removed and %d VMs are left; left-overs of a create: %t", l.vms, l.left)
		}
		if l.hasNode() && l.isKnown() {
			l.t.Fatal("the finalizer of the machine is removed and its Node is left")
		}
		l.machine = nil
		return
	}
	l.machine, l.named = m, m.Spec.ProviderID == ownVM.ProviderID
	if m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning && l.token {
		l.t.Fatal("the machine is said to run and its token is left")
	}
}

// cloudFails draws whether a call fails, and whether it takes effect all the same.
func (l *life) cloudFails(w *World) (fails, effect bool) {
	if !l.faulty || rapid.IntRange(0, 3).Draw(l.t, "call") > 0 {
		return false, true
	}
	codes := []driver.Code{driver.Internal, driver.Unavailable, driver.DeadlineExceeded, driver.ResourceExhausted, driver.InvalidArgument}
	w.Failure = &Failure{Code: rapid.SampledFrom(codes).Draw(l.t, "code")}
	return true, w.Failure.Code == driver.DeadlineExceeded && rapid.Bool().Draw(l.t, "effect")
}

func (l *life) act(w *World, v Verdict) {
	atTarget := []Action{
		CreateToken, ProlongToken, DropToken, FindNode, ClaimNode, PatchNode, SetTerminating, DrainNode, DrainForUpdate, DeleteNode,
	}
	if l.faulty && slices.Contains(atTarget, v.Do) && rapid.IntRange(0, 9).Draw(l.t, "no answer") == 0 {
		l.unanswered(w)
		return
	}
	if l.cloud != nil && l.cloud(w, v.Do) {
		return
	}
	switch v.Do {
	case AddFinalizers:
		l.hasFinalizers, w.Class.HasFinalizers = true, true
	case CheckFields:
		w.Class.Fields.Read = true
	case CreateToken:
		l.token, w.Token = true, TokenPresent
	case ProlongToken:
		w.Token = TokenAbsent
		if l.token {
			w.Token, w.TokenExpiry = TokenPresent, l.now.Add(TokenLife(l.machine, limits()))
		}
	case DropToken:
		l.token, w.Token = false, TokenAbsent
	case FindVM:
		if fails, _ := l.cloudFails(w); fails {
			return
		}
		w.VM = VMFact{State: VMAbsent}
		if l.vms > 0 {
			w.VM = VMFact{State: VMPresent, VM: ownVM}
			l.proven, w.Proven = true, ownVM.ProviderID
		}
	case AskCloud:
		w.VM, w.Evidence = VMFact{State: rapid.SampledFrom([]VMState{VMUnknown, VMAbsent, VMPresent}).Draw(l.t, "answer"), VM: ownVM},
			EvidenceFact{}
		w.Evidence.Text = EvidenceOf(*w)
	case CreateVM:
		l.mayCreate(w)
		fails, effect := l.cloudFails(w)
		if effect && l.vms == 0 {
			l.vms++
			l.created++
		}
		l.left = fails && l.vms == 0 && (l.left || rapid.Bool().Draw(l.t, "left-overs"))
		if !fails {
			w.VM = VMFact{State: VMUninitialized, VM: ownVM}
			l.proven, w.Proven = true, ownVM.ProviderID
		}
	case InitializeVM:
		if fails, _ := l.cloudFails(w); !fails {
			w.VM.State = VMPresent
		}
	case DeleteVM:
		if l.pods > 0 && l.now.Before(l.machine.DeletionTimestamp.Add(drainTimeout)) {
			l.t.Fatalf("the VM is deleted, and %d pods are on its Node", l.pods)
		}
		fails, effect := l.cloudFails(w)
		takesTime := l.faulty && rapid.Bool().Draw(l.t, "takes its time")
		if effect && !takesTime {
			l.vms, l.left = 0, false
		}
		l.ending = VMFact{}
		switch {
		case !fails && takesTime:
			l.ending = VMFact{State: VMEnding, EndingSince: l.now, AskedAt: l.now}
			w.VM = l.ending
		case !fails:
			w.VM = VMFact{State: VMAbsent, Gone: true}
		}
	case FindNode:
		w.Node = NodeFact{State: NodeAbsent}
		if l.node != nil {
			w.Node = NodeFact{State: NodePresent, Node: l.node, Live: true}
		}
	case FindNodeClaims:
		w.NodeClaims = OtherClaims{Read: true}
	case FindVMClaims:
		w.VMClaims = OtherClaims{Read: true}
	case ClaimNode, PatchNode:
		l.node = patched(l.t, l.node, v.Patch)
		w.Node.Node, w.Node.Written = l.node, !v.Patch.Status
	case DrainForUpdate:
		l.drainForUpdate(w)
	case DrainPreserved:
		w.PreservedDrain.State = preserve.DrainDone
	case SetTerminating:
		l.node = l.node.DeepCopy()
		l.node.Status.Conditions = append(l.node.Status.Conditions, corev1.NodeCondition{
			Type: v1alpha1.NodeTerminating, Status: corev1.ConditionTrue, Reason: NodeReason(l.machine),
		})
		w.Node.Node = l.node
	case DrainNode:
		l.drain(w)
	case DeleteNode:
		if l.vms > 0 {
			l.t.Fatal("the Node is deleted before its VM")
		}
		if !l.hasNode() {
			l.t.Fatal("a Node is deleted that is another VM's")
		}
		l.node, w.Node = nil, NodeFact{State: NodeAbsent}
	case DeleteMachine:
		l.delete()
		w.Machine = l.machine
	case Rest, Save, ReadSecret, ReadConfig:
	}
}

// drainForUpdate has some pods leave a Node that is to be updated in place.
func (l *life) drainForUpdate(w *World) {
	l.pods -= rapid.IntRange(0, l.pods).Draw(l.t, "pods that leave")
	if w.UpdateDrain = (drain.Report{State: drain.Drained, Text: "drained"}); l.pods > 0 {
		w.UpdateDrain = drain.Report{State: drain.Draining, Text: "draining", IsStuck: rapid.Bool().Draw(l.t, "stuck"), Wake: time.Minute}
	}
}

// ask puts labels on the Node that have it updated in place, or say how that has ended.
func (l *life) ask() {
	if !l.hasNode() {
		return
	}
	l.node = l.node.DeepCopy()
	if l.node.Labels == nil {
		l.node.Labels = map[string]string{}
	}
	l.node.Labels[v1alpha1.LabelCandidateForUpdate], l.node.Labels[v1alpha1.LabelSelectedForUpdate] = "true", "true"
	result := rapid.SampledFrom([]string{"", "", v1alpha1.UpdateResultSuccessful, v1alpha1.UpdateResultFailed}).Draw(l.t, "result")
	if l.node.Labels[v1alpha1.LabelUpdateResult] = result; result == "" {
		delete(l.node.Labels, v1alpha1.LabelUpdateResult)
	}
	if l.node.Labels[v1alpha1.LabelSlot] != "" {
		l.reportNode()
	}
}

// mayFail checks that a machine that has run fails only after its health timeout, and with a
// disruption.
func (l *life) mayFail(w World, s step) {
	waits := s.from == v1alpha1.MachineUnknown || s.from == v1alpha1.MachineInPlaceUpdateFailed
	hasRun := waits || s.from == v1alpha1.MachineRunning || s.from == v1alpha1.MachineInPlaceUpdating ||
		s.from == v1alpha1.MachineInPlaceUpdateSuccessful
	if !hasRun || s.to != v1alpha1.MachineFailed && s.to != v1alpha1.MachineCrashLoopBackOff {
		return
	}
	if !waits || s.to != v1alpha1.MachineFailed || w.Disruption == DisruptionPending || w.Node.State == NodePresent && !w.Node.Live {
		l.t.Fatalf("a machine that has run changes from %s to %s, with disruption %d, by %+v", s.from, s.to, w.Disruption, w.Node)
	}
}

// setDisruption changes the decision on the machine's disruption.
func (l *life) setDisruption(disruption DisruptionFact) {
	if l.disruption != disruption {
		l.disruption = disruption
		l.enqueue()
	}
}

// drain has some pods leave, or one at a time once all is well.
func (l *life) drain(w *World) {
	leave := min(l.pods, 1)
	if l.faulty {
		leave = rapid.IntRange(0, l.pods).Draw(l.t, "pods that leave")
	}
	wasThere := l.pods > 0
	l.pods -= leave
	switch {
	case !l.now.Before(l.machine.DeletionTimestamp.Add(drainTimeout)):
		w.Drain = drain.Report{State: drain.GivenUp, Ending: wasThere, Text: "not drained"}
	case l.pods == 0:
		w.Drain = drain.Report{State: drain.Drained, Ending: wasThere, Text: "drained"}
	default:
		w.Drain = drain.Report{State: drain.Draining, Text: "draining", IsStuck: rapid.Bool().Draw(l.t, "stuck"), Wake: time.Minute}
	}
	l.drained = w.Drain.State.Ended()
}

// unanswered handles an action that the target cluster does not answer: the pass ends,
// or, after a while, it goes on and a machine that is being deleted records that.
func (l *life) unanswered(w *World) {
	l.broken = l.machine.DeletionTimestamp == nil || w.Drain.State.Ended() || rapid.Bool().Draw(l.t, "at first")
	if !l.broken {
		w.Drain = drain.Report{State: drain.Draining, Text: "no answer", IsStuck: true, Wake: time.Minute}
	}
}

// mayCreate checks all that has to hold before a VM is created.
func (l *life) mayCreate(w *World) {
	switch {
	case !slices.Contains(l.machine.Finalizers, v1alpha1.FinalizerName):
		l.t.Fatal("a VM is created before the machine has our finalizer")
	case !l.hasFinalizers:
		l.t.Fatal("a VM is created before its class is held")
	case w.VM.State != VMAbsent:
		l.t.Fatal("a VM is created before the cloud has said that there is none")
	case !l.token:
		l.t.Fatal("a VM is created without a token")
	case l.machine.DeletionTimestamp != nil:
		l.t.Fatal("a VM is created for a machine that is being deleted")
	}
}

func (l *life) delete() {
	if l.machine.DeletionTimestamp == nil {
		l.machine = l.machine.DeepCopy()
		now := metav1.NewTime(l.now)
		l.machine.DeletionTimestamp = &now
		l.enqueue()
		if len(l.machine.Finalizers) == 0 {
			l.machine = nil
		}
	}
}

func (l *life) boot() {
	if l.vms > 0 && l.node == nil {
		l.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: corev1.NodeSpec{ProviderID: ownVM.ProviderID}}
		l.reportNode()
	}
	if l.node != nil {
		l.setConditions(corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue})
	}
}

// rounds of rapid's 100 worlds each: the rare interleavings that have shown defects need about 200.
const rounds = 20

func TestALifeEndsRight(t *testing.T) {
	worlds.Check(t, rounds, aLife)
	everyStepIsReported(t)
}

func aLife(t *rapid.T) {
	w := fresh()
	w.Machine.Finalizers = nil
	w.Machine.Labels = map[string]string{v1alpha1.LabelSlot: "7"}
	l := &life{t: t, now: born, machine: w.Machine, faulty: true}
	l.enqueue()
	for range rapid.IntRange(0, 30).Draw(t, "steps") {
		if l.machine == nil {
			return
		}
		switch rapid.IntRange(0, 12).Draw(t, "event") {
		case 12:
			l.ask()
		case 10:
			if rapid.IntRange(0, 3).Draw(t, "displaced") == 0 {
				l.displace()
			}
		case 11:
			l.setDisruption(rapid.SampledFrom([]DisruptionFact{DisruptionPending, DisruptionAllowed, DisruptionUnneeded}).Draw(t, "disruption"))
		case 0:
			l.boot()
		case 1:
			if l.node != nil {
				l.setConditions()
			}
		case 2:
			if rapid.IntRange(0, 3).Draw(t, "deletes") == 0 {
				l.delete()
			}
		case 3:
			l.drained, l.proven, l.ending = false, false, VMFact{} // another process takes over
			l.enqueue()
		case 4:
			if l.hasNode() && l.machine.DeletionTimestamp == nil {
				l.pods++
			}
		default:
			l.now = l.now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "seconds")) * time.Second)
			l.pass()
		}
		if l.vms > 1 || l.created > 1 && l.machine != nil && l.machine.DeletionTimestamp == nil {
			t.Fatalf("%d VMs, %d created", l.vms, l.created)
		}
	}
	l.settle()
}

// settle ends all faults, without an event for that, and has the machine become what it should be.
// The controller looks at it when something happens and when it said that it would, and never else.
func (l *life) settle() {
	l.faulty = false
	l.setDisruption(rapid.SampledFrom([]DisruptionFact{DisruptionAllowed, DisruptionUnneeded}).Draw(l.t, "disruption in the end"))
	boots := rapid.Bool().Draw(l.t, "boots in the end")
	for range 40 {
		if l.machine == nil {
			if l.vms > 0 || l.hasNode() && l.isKnown() || l.token {
				l.t.Fatalf("the machine is gone and left %d VMs, Node %v, token %v", l.vms, l.hasNode(), l.token)
			}
			return
		}
		if boots {
			l.boot()
		}
		switch {
		case !l.due.IsZero():
			l.now = later(l.now, l.due)
			l.pass()
		case l.isSettled():
			l.delete()
		default:
			l.t.Fatalf("nothing has the machine looked at again, and it is not at an end: %+v", l.machine.Status)
		}
	}
	l.t.Fatalf("the machine does not come to an end: %+v", l.machine.Status)
}

// isSettled reports whether a machine that is not to go has become what it should be.
func (l *life) isSettled() bool {
	switch phase := l.machine.Status.CurrentStatus.Phase; {
	case l.machine.DeletionTimestamp != nil:
		return false
	case phase == v1alpha1.MachineRunning:
		return l.hasNode()
	default:
		return phase == v1alpha1.MachineFailed
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
