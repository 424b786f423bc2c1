package stamp

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

const (
	// FailAfter is for how long a daemon has to report a failure until the update has failed. It tries
	// again by itself, and a Node may still show the failure of an earlier configuration.
	FailAfter = time.Minute
	// mostReason is how many bytes of a daemon's reason the result has: it becomes part of messages
	// about the machine.
	mostReason = 500
)

// NodeWorld is the input of DecideNode.
type NodeWorld struct {
	Now    time.Time
	Prefix v1alpha1.AnnotationPrefix
	Pool   *v1alpha1.MachineConfigPool
	// Machine and its Node, which is bound to it.
	Machine *machinev1alpha1.Machine
	Node    *corev1.Node
	// To is the MachineSet whose template the machine gets by its update; nil when it is not known.
	To *machinev1alpha1.MachineSet
	// New is the new MachineSet of the MachineDeployment; nil when there is none yet, and when the
	// MachineDeployment updates no machines in place by now or is paused.
	New *machinev1alpha1.MachineSet
	// FailingSince is when this process has first seen the failure that the daemon reports; zero when
	// it reports none.
	FailingSince time.Time
}

// NodeVerdict is the result of DecideNode.
type NodeVerdict struct {
	// Node as it has to be; that of the world when nothing changes. Only metadata differ.
	Node *corev1.Node
	// Did names what changes, for traces and logs; "" for nothing.
	Did string
	// IsFailing reports whether the daemon reports a failure with what it was assigned, and the update
	// has not succeeded.
	IsFailing bool
	// Wake is when to decide again if nothing changes; 0 is never.
	Wake time.Duration
}

// Changes of a Node, for NodeVerdict.Did.
const (
	DidAdopt    = "Adopt"
	DidAssign   = "Assign"
	DidRedirect = "Redirect"
	DidAnswer   = "AnswerDrain"
	DidSucceed  = "ReportSuccess"
	DidFail     = "ReportFailure"
)

// DecideNode returns what a Node of a pool whose MachineDeployment rolls out has to carry. It is
// idempotent.
func DecideNode(w NodeWorld) NodeVerdict {
	if !IsByDeployment(w.Pool) || w.Machine.DeletionTimestamp != nil || w.Node.DeletionTimestamp != nil {
		return NodeVerdict{Node: w.Node}
	}
	b := bridge{NodeWorld: w, v: NodeVerdict{Node: w.Node}}
	if answersDrain(w.Pool, w.Node, w.Prefix) {
		b.annotate(DidAnswer, w.Prefix.LastAppliedDrain(), b.value(w.Prefix.DesiredDrain()))
	}
	switch machinefacts.InPlaceStage(w.Node) {
	case machinev1alpha1.NodeReasonReadyForUpdate:
		b.update()
	case machinev1alpha1.NodeReasonUpdateFailed:
		b.recover()
	default:
		b.adopt()
	}
	return b.v
}

// answersDrain reports whether DecideNode answers what the daemon of a Node requests with the
// annotation desiredDrain. Of such a Node no other controller may answer it. The Node was drained
// for its update, and stays cordoned until that is over: a drain is done, and the end of the cordon
// is the business of the controller of MachineDeployments.
func answersDrain(pool *v1alpha1.MachineConfigPool, node *corev1.Node, prefix v1alpha1.AnnotationPrefix) bool {
	request := node.Annotations[prefix.DesiredDrain()]
	if !IsByDeployment(pool) || request == "" || request == node.Annotations[prefix.LastAppliedDrain()] {
		return false
	}
	switch machinefacts.InPlaceStage(node) {
	case machinev1alpha1.NodeReasonReadyForUpdate, machinev1alpha1.NodeReasonUpdateFailed:
		return node.Spec.Unschedulable
	case machinev1alpha1.NodeReasonUpdateSuccessful: // an operator has reported the success before the daemon was done
		return strings.HasPrefix(request, v1alpha1.UncordonFor(""))
	}
	return false
}

// bridge is a NodeWorld with the verdict on it so far.
type bridge struct {
	NodeWorld

	v NodeVerdict
}

// adopt records on a Node which has booted with the configuration of its machine that this is what
// it was assigned. Nothing happens on the Node: it has it.
func (b *bridge) adopt() {
	current := b.value(b.Prefix.CurrentConfig())
	if b.value(b.Prefix.DesiredConfig()) == "" && current != "" && current == b.Machine.Annotations[v1alpha1.AnnotationMachineConfig] &&
		isOf(current, b.Pool) {
		b.assign(DidAdopt, current)
	}
}

// update carries on the update of a Node that is drained.
func (b *bridge) update() {
	to := b.target()
	if to == "" || b.result() != "" || b.redirect() {
		return // the update is about something else, or has ended
	}
	if why := b.impossible(to); why != "" {
		b.fail(why)
		return
	}
	if b.value(b.Prefix.DesiredConfig()) != to {
		b.assign(DidAssign, to)
		return
	}
	b.conclude(to)
}

// recover ends an update that has failed when it succeeds after all, or is about another
// configuration by now.
func (b *bridge) recover() {
	to := b.target()
	if to == "" || b.result() != machinev1alpha1.UpdateResultFailed || b.redirect() {
		return
	}
	if isOf(to, b.Pool) && b.value(b.Prefix.DesiredConfig()) == to {
		b.conclude(to)
	}
}

// redirect has an update end at the new MachineSet, if that is another one than the one for which
// it has begun, and reports whether it is. The Node is drained and counts already, so nothing more
// becomes unavailable: a configuration that was corrected or taken back is neither completed nor
// waited for. The machine is still of its old set, which may be the new one again. Other agents
// than the daemon are not redirected: it is not known what they have done.
func (b *bridge) redirect() bool {
	if b.New == nil || b.New.UID == b.To.UID || b.New.Spec.Template.Spec.Class.Name != b.Machine.Spec.Class.Name {
		return false
	}
	config := b.New.Spec.Template.Annotations[v1alpha1.AnnotationMachineConfig]
	if !isOf(config, b.Pool) {
		return false
	}
	b.annotate(DidRedirect, machinev1alpha1.AnnotationUpdateTo, b.New.Name)
	b.assign(DidRedirect, config)
	return true
}

// conclude records what the daemon reports about the configuration that it was assigned as the
// result of the update.
func (b *bridge) conclude(to string) {
	if b.isUpdated(to) {
		b.succeed()
		return
	}
	state := v1alpha1.ParseNodeState(b.value(b.Prefix.State()))
	if state != v1alpha1.StateDegraded && state != v1alpha1.StateUnreconcilable {
		return
	}
	b.v.IsFailing = true
	failing := time.Duration(0)
	if !b.FailingSince.IsZero() {
		failing = b.Now.Sub(b.FailingSince)
	}
	why := fmt.Sprintf("machine-config-daemon reports %s with %s: %s", state, to, b.value(b.Prefix.Reason()))
	switch {
	case b.hasFailed(why):
	case failing < FailAfter:
		b.v.Wake = FailAfter - failing
	default:
		b.fail(why)
	}
}

// target returns the configuration that the template of the machine's next set names; "" when it
// names none.
func (b *bridge) target() string {
	if b.To == nil {
		return ""
	}
	return b.To.Spec.Template.Annotations[v1alpha1.AnnotationMachineConfig]
}

// impossible returns why the daemon cannot bring the Node to the template of the machine's next
// set; "" when it may.
func (b *bridge) impossible(to string) string {
	if !isOf(to, b.Pool) {
		return fmt.Sprintf("the template names the configuration %s, which is none of pool %s", bounded.Text(to, mostReason), b.Pool.Name)
	}
	if from, class := b.Machine.Spec.Class.Name, b.To.Spec.Template.Spec.Class.Name; from != class {
		return fmt.Sprintf("the template has the class %s instead of %s, and machine-config-daemon changes the configuration only", class, from)
	}
	return ""
}

// isUpdated reports whether the daemon is done with a configuration, and the Node is Ready.
func (b *bridge) isUpdated(to string) bool {
	ready := machinefacts.NodeCondition(b.Node, corev1.NodeReady)
	return b.value(b.Prefix.CurrentConfig()) == to && v1alpha1.ParseNodeState(b.value(b.Prefix.State())) == v1alpha1.StateDone &&
		ready != nil && ready.Status == corev1.ConditionTrue
}

func (b *bridge) result() string { return b.Node.Labels[machinev1alpha1.LabelUpdateResult] }

func (b *bridge) value(annotation string) string { return b.Node.Annotations[annotation] }

func (b *bridge) succeed() {
	b.label(machinev1alpha1.LabelUpdateResult, machinev1alpha1.UpdateResultSuccessful)
	delete(b.v.Node.Annotations, machinev1alpha1.AnnotationUpdateFailedReason)
	b.v.Did = DidSucceed
}

// hasFailed reports whether the failure is recorded, with its reason.
func (b *bridge) hasFailed(why string) bool {
	return b.result() == machinev1alpha1.UpdateResultFailed &&
		b.value(machinev1alpha1.AnnotationUpdateFailedReason) == bounded.Text(why, mostReason)
}

func (b *bridge) fail(why string) {
	b.label(machinev1alpha1.LabelUpdateResult, machinev1alpha1.UpdateResultFailed)
	b.annotate(DidFail, machinev1alpha1.AnnotationUpdateFailedReason, bounded.Text(why, mostReason))
}

func (b *bridge) assign(did, config string) {
	b.annotate(did, b.Prefix.DesiredConfig(), config)
	b.label(v1alpha1.LabelPool, b.Pool.Name)
}

// annotate and label change the Node, which is copied before the first change.
func (b *bridge) annotate(did, key, value string) {
	b.copyNode()
	b.v.Node.Annotations[key] = value
	b.v.Did = did
}

func (b *bridge) label(key, value string) {
	b.copyNode()
	b.v.Node.Labels[key] = value
}

func (b *bridge) copyNode() {
	if b.v.Node != b.Node {
		return
	}
	b.v.Node = b.Node.DeepCopy()
	if b.v.Node.Annotations == nil {
		b.v.Node.Annotations = map[string]string{}
	}
	if b.v.Node.Labels == nil {
		b.v.Node.Labels = map[string]string{}
	}
}
