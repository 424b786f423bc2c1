package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// Level is how much a trouble matters.
type Level string

// The levels.
const (
	// Error means that the object does not do its work, and that a user has to act.
	Error Level = "Error"
	// Warning means that it does not do all of its work, or that the fleet waits.
	Warning Level = "Warning"
	// Note means that it is in a state that people should know of: paused, preserved, being created.
	Note Level = "Note"
)

// rank orders levels, the worst first. "" is the last.
func (l Level) rank() int {
	return slices.Index([]Level{Error, Warning, Note, ""}, l)
}

// Trouble is one reason why an object is not as it should be.
type Trouble struct {
	Object

	Level Level `json:"level"`
	// Reason is one word: that of a condition, or a phase.
	Reason string `json:"reason"`
	// Message is a sentence for people.
	Message string `json:"message,omitempty"`
	// Since is when it began; zero if that is not known.
	Since time.Time `json:"since,omitzero"`
}

// sortTroubles orders troubles, the worst first, then by object.
func sortTroubles(all []Trouble) {
	slices.SortStableFunc(all, func(a, b Trouble) int {
		return cmp.Or(cmp.Compare(a.Level.rank(), b.Level.rank()), compareObjects(a.Object, b.Object))
	})
}

// unlabeledFor is for how long a new root may be without the label of a slot: a new fleet acquires
// its slots within that time.
const unlabeledFor = time.Minute

// condition is a condition of a MachineDeployment or a MachineSet.
type condition struct {
	kind, reason, message string
	status                corev1.ConditionStatus
	since                 time.Time
}

// conditionLevels has the levels of conditions in the order of their importance.
func conditionLevels() []struct {
	kind  string
	is    corev1.ConditionStatus
	level Level
} {
	return []struct {
		kind  string
		is    corev1.ConditionStatus
		level Level
	}{
		{string(v1alpha1.MachineDeploymentValid), corev1.ConditionFalse, Error},
		{string(v1alpha1.MachineDeploymentReplicaFailure), corev1.ConditionTrue, Error},
		{string(v1alpha1.MachineDeploymentMachineCreateFailure), corev1.ConditionTrue, Error},
		{string(v1alpha1.MachineDeploymentProgressing), corev1.ConditionFalse, Error},
		{string(v1alpha1.MachineDeploymentAPIServerAway), corev1.ConditionTrue, Warning},
		{string(v1alpha1.MachineDeploymentCircuitBreakerOpen), corev1.ConditionTrue, Warning},
		{string(v1alpha1.MachineDeploymentFrozen), corev1.ConditionTrue, Warning},
		{string(v1alpha1.MachineDeploymentRolloutStalled), corev1.ConditionTrue, Warning},
		{string(v1alpha1.MachineDeploymentDeletionsHeld), corev1.ConditionTrue, Warning},
		{string(v1alpha1.MachineDeploymentCreationDelayed), corev1.ConditionTrue, Warning},
		{string(v1alpha1.MachineDeploymentMachinesReleased), corev1.ConditionTrue, Warning},
		{string(v1alpha1.MachineDeploymentAvailable), corev1.ConditionFalse, Warning},
		{string(v1alpha1.MachineDeploymentValid), corev1.ConditionTrue, Note},
		{string(v1alpha1.MachineDeploymentCircuitBreakerOpen), corev1.ConditionFalse, Note},
	}
}

// fromConditions returns the troubles that conditions report, the most important first. The word is
// the type of the condition, which names the trouble, except where its reason does.
func fromConditions(of Object, conditions []condition) (all []Trouble) {
	for _, known := range conditionLevels() {
		for _, c := range conditions {
			if c.kind != known.kind || c.status != known.is {
				continue
			}
			word := c.kind
			switch c.kind {
			case string(v1alpha1.MachineDeploymentValid), string(v1alpha1.MachineDeploymentProgressing),
				string(v1alpha1.MachineDeploymentAvailable), string(v1alpha1.MachineDeploymentReplicaFailure):
				word = c.reason
			case string(v1alpha1.MachineDeploymentCircuitBreakerOpen):
				if c.status == corev1.ConditionFalse {
					word = c.reason
				}
			}
			message := lifecycle.CloudText(c.message)
			if word != c.reason && c.reason != "" {
				message = c.reason + ": " + message
			}
			all = append(all, Trouble{Object: of, Level: known.level, Reason: word, Message: message, Since: c.since})
		}
	}
	return all
}

// DeploymentTroubles returns the troubles of a MachineDeployment, the most important first.
func DeploymentTroubles(d *v1alpha1.MachineDeployment, now time.Time) []Trouble {
	of := objectOf(KindDeployment, d)
	conditions := make([]condition, 0, len(d.Status.Conditions))
	for _, c := range d.Status.Conditions {
		conditions = append(conditions, condition{string(c.Type), c.Reason, c.Message, c.Status, c.LastTransitionTime.Time})
	}
	all := append(unlabeled(of, d, now), fromConditions(of, conditions)...)
	if d.Spec.Paused {
		all = append(all, Trouble{
			Object: of, Level: Note, Reason: "Paused",
			Message: "no machine is replaced for its template until it is resumed",
		})
	}
	if d.Status.ObservedGeneration < d.Generation {
		all = append(all, Trouble{Object: of, Level: Note, Reason: "NotObserved", Message: fmt.Sprintf(
			"generation %d of the spec was not observed yet; the status is that of generation %d", d.Generation, d.Status.ObservedGeneration)})
	}
	return append(all, deleting(of, d)...)
}

// SetTroubles returns the troubles of a MachineSet, the most important first.
func SetTroubles(set *v1alpha1.MachineSet, now time.Time) []Trouble {
	of := objectOf(KindSet, set)
	conditions := make([]condition, 0, len(set.Status.Conditions))
	for _, c := range set.Status.Conditions {
		conditions = append(conditions, condition{string(c.Type), c.Reason, c.Message, c.Status, c.LastTransitionTime.Time})
	}
	all := append(unlabeled(of, set, now), fromConditions(of, conditions)...)
	isReported := slices.ContainsFunc(all, func(t Trouble) bool { return t.Reason == string(v1alpha1.MachineSetFrozen) })
	if machinefacts.IsFrozen(set) && !isReported {
		all = append(all, Trouble{
			Object: of, Level: Warning, Reason: string(v1alpha1.MachineSetFrozen),
			Message: "the label freeze=True keeps it from creating machines",
		})
	}
	return append(all, deleting(of, set)...)
}

// unlabeled returns the trouble of an object that is in no slot, so that no replica reconciles it.
func unlabeled(of Object, o metav1.Object, now time.Time) []Trouble {
	created := o.GetCreationTimestamp().Time
	if o.GetLabels()[v1alpha1.LabelSlot] != "" || now.Sub(created) < unlabeledFor {
		return nil
	}
	return []Trouble{{
		Object: of, Level: Error, Reason: "NoSlot", Since: created,
		Message: "it has no slot label, so that no replica reconciles it; its Events NotAlone, NotSelected or NotLabeled have the cause",
	}}
}

func deleting(of Object, o metav1.Object) []Trouble {
	at := o.GetDeletionTimestamp()
	if at == nil {
		return nil
	}
	return []Trouble{{Object: of, Level: Note, Reason: "Deleting", Message: "it is being deleted", Since: at.Time}}
}

// phaseCreating is shown for the empty phase.
const phaseCreating = "Creating"

// StateOf returns the phase of a machine as it is shown.
func StateOf(m *v1alpha1.Machine) string {
	if m.DeletionTimestamp != nil {
		return string(v1alpha1.MachineTerminating)
	}
	return cmp.Or(string(m.Status.CurrentStatus.Phase), phaseCreating)
}

// MachineTroubles returns the troubles of a machine, the most important first. The first one has
// the message of its last operation.
func MachineTroubles(m *v1alpha1.Machine, now time.Time) (all []Trouble) {
	of, state := objectOf(KindMachine, m), StateOf(m)
	last, since := m.Status.LastOperation, m.Status.CurrentStatus.LastUpdateTime.Time
	if since.IsZero() {
		since = m.CreationTimestamp.Time
	}
	if m.DeletionTimestamp != nil {
		since = m.DeletionTimestamp.Time
	}
	if level := levelOfMachine(state, last, now.Sub(since)); level != "" {
		message := lifecycle.CloudText(last.Description)
		if last.State == v1alpha1.MachineStateFailed && last.ErrorCode != "" {
			message = last.ErrorCode + ": " + message
		}
		all = append(all, Trouble{Object: of, Level: level, Reason: state, Message: message, Since: since})
	}
	if machinefacts.IsPreserved(m, now) {
		until := m.Status.CurrentStatus.PreserveExpiryTime.UTC().Format(time.RFC3339)
		all = append(all, Trouble{Object: of, Level: Note, Reason: "Preserved", Message: "it is preserved until " + until})
	}
	return all
}

// slowAfter is for how long a machine may be created, updated or deleted before that is a warning.
const slowAfter = 15 * time.Minute

func levelOfMachine(state string, last v1alpha1.LastOperation, in time.Duration) Level {
	switch state {
	case string(v1alpha1.MachineFailed), string(v1alpha1.MachineCrashLoopBackOff), string(v1alpha1.MachineInPlaceUpdateFailed):
		return Error
	case string(v1alpha1.MachineUnknown):
		return Warning
	case string(v1alpha1.MachineRunning), string(v1alpha1.MachineAvailable):
		if last.State == v1alpha1.MachineStateFailed {
			return Warning
		}
		return ""
	}
	if last.State == v1alpha1.MachineStateFailed || in > slowAfter {
		return Warning
	}
	return Note
}

// nodeTroubles returns the troubles of the Node of a machine that runs, or is being deleted. node
// is nil where there is none.
func nodeTroubles(m *v1alpha1.Machine, node *corev1.Node) (all []Trouble) {
	name := m.Labels[v1alpha1.LabelNode]
	if node == nil {
		if name == "" || m.Status.CurrentStatus.Phase != v1alpha1.MachineRunning || m.DeletionTimestamp != nil {
			return nil
		}
		return []Trouble{{
			Object: Object{Kind: KindNode, Name: name}, Level: Warning, Reason: "NodeMissing",
			Message: "the machine runs and has no Node of that name",
		}}
	}
	of := Object{Kind: KindNode, Name: node.Name}
	ready := machinefacts.NodeCondition(node, corev1.NodeReady)
	switch {
	case ready == nil:
		all = append(all, Trouble{
			Object: of, Level: Warning, Reason: "NotReady", Message: "its kubelet has not reported",
			Since: node.CreationTimestamp.Time,
		})
	case ready.Status != corev1.ConditionTrue:
		message := strings.TrimPrefix(ready.Reason+": "+ready.Message, ": ")
		all = append(all, Trouble{Object: of, Level: Warning, Reason: "NotReady", Message: message, Since: ready.LastTransitionTime.Time})
	}
	if stage := machinefacts.InPlaceStage(node); stage != "" && machinefacts.IsInPlaceSelected(node) {
		all = append(all, Trouble{Object: of, Level: Note, Reason: stage, Message: "it is being updated in place"})
	}
	if node.Spec.Unschedulable {
		all = append(all, Trouble{Object: of, Level: Note, Reason: "Cordoned", Message: "no pods are scheduled to it"})
	}
	return all
}
