package preserve

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinefacts"
)

// World is what the decision rests on. Everything in it is read only.
type World struct {
	Now time.Time
	// Timeout is for how long a machine is preserved that does not say itself.
	Timeout time.Duration
	// Machine as it stands, or as it is about to be written.
	Machine *v1alpha1.Machine
	// Node of the machine; nil when it has none. A Node that was only not seen is not none.
	Node *corev1.Node
	// Rolling says that the Node is kept from the autoscaler anyway, because machines are replaced.
	Rolling bool
	// Drain of the Node, and DrainText what is to be said of it.
	Drain     Drain
	DrainText string
}

// Drain is how far the drain of the Node has come, as far as that is not to be seen on the Node.
type Drain int

// The values. DrainUnknown is the zero value: nobody has looked.
const (
	DrainUnknown Drain = iota
	// DrainRunning means that there are pods left.
	DrainRunning
	// DrainDone means that all pods have gone that have to.
	DrainDone
	// DrainFailed means that some pods could not be evicted, and that it is tried again.
	DrainFailed
	// DrainForced means that all pods have gone, but not all of them in good.
	DrainForced
)

// Verdict is a decision.
type Verdict struct {
	// Machine as it should stand. It is written before the Node, and the decision taken anew after each write.
	Machine *v1alpha1.Machine
	// Node as it should stand; nil when there is none.
	Node *corev1.Node
	// Drain says that the Node has to be drained now.
	Drain bool
	// Until is when the time of the machine is over; zero when it is not preserved.
	Until time.Time
	// Began and Ended say that with this verdict the preservation begins, or is over.
	Began, Ended bool
	// Unknown is a value of the annotation that means nothing; "" when there is none.
	Unknown string
}

// Decide says what machine and Node should carry. It is total, and on what it says it says the same again.
func Decide(w World) Verdict {
	a := read(w)
	expired, failed := machinefacts.IsPreservationOver(w.Machine, w.Now), machinefacts.HasFailed(w.Machine)
	begun := w.Machine.Status.CurrentStatus.PreserveExpiryTime != nil || isMarked(w.Node)
	switch a.value {
	case "", v1alpha1.PreserveFalse:
		return stop(w, a, begun, false)
	case v1alpha1.PreserveWhenFailed:
		if expired || !failed {
			return stop(w, a, begun, expired)
		}
	case v1alpha1.PreserveAuto:
		if expired || !failed {
			return stop(w, a, true, true)
		}
	case v1alpha1.PreserveNow:
		if expired {
			return stop(w, a, true, true)
		}
	default:
		return unknown(w, a, expired)
	}
	return keep(w, a)
}

// unknown leaves it as it is until the time is over: a slip of the pen must not cost a machine.
func unknown(w World, a asked, expired bool) Verdict {
	a.byNode, a.byMachine = false, false // a value that means nothing is not noted
	if expired {
		return stop(w, a, true, false)
	}
	v := Verdict{Machine: w.Machine, Node: w.Node}
	if w.Machine.Status.CurrentStatus.PreserveExpiryTime != nil {
		v = keep(w, a)
	}
	v.Unknown = a.value
	return v
}

// asked is what the annotations say.
type asked struct {
	// value that counts.
	value string
	// byNode says that the Node has the say, byMachine that the machine has it because the Node is gone.
	byNode, byMachine bool
}

// read finds out who has the say. A Node that is gone has left its word behind.
func read(w World) asked {
	own, annotated := w.Machine.Annotations[v1alpha1.AnnotationPreserve]
	last := w.Machine.Annotations[v1alpha1.AnnotationLastAppliedNodePreserveValue]
	switch {
	case w.Node == nil && !annotated:
		return asked{value: last}
	case w.Node == nil:
		return asked{value: own, byMachine: true}
	}
	if value := w.Node.Annotations[v1alpha1.AnnotationPreserve]; value != "" || last != "" {
		return asked{value: value, byNode: true}
	}
	return asked{value: own}
}

// obey notes on the machine what its Node says, in the place of what the machine says itself; or forgets what a Node has
// said that is gone, where the machine says something itself. Whoever sees the machine only has to know what counts.
func (a asked) obey(w World, m *v1alpha1.Machine) {
	switch {
	case a.byNode:
		delete(m.Annotations, v1alpha1.AnnotationPreserve)
		annotate(m, v1alpha1.AnnotationLastAppliedNodePreserveValue, w.Node.Annotations[v1alpha1.AnnotationPreserve])
	case a.byMachine:
		delete(m.Annotations, v1alpha1.AnnotationLastAppliedNodePreserveValue)
	}
}

// annotate sets an annotation of a machine, or removes it for "".
func annotate(m *v1alpha1.Machine, key, value string) {
	switch {
	case value == "":
		delete(m.Annotations, key)
	case m.Annotations == nil:
		m.Annotations = map[string]string{key: value}
	default:
		m.Annotations[key] = value
	}
}

// keep preserves the machine, or goes on to.
func keep(w World, a asked) Verdict {
	m := w.Machine.DeepCopy()
	a.obey(w, m)
	status := &m.Status.CurrentStatus
	began := status.PreserveExpiryTime == nil
	if began {
		until := metav1.NewTime(w.Now.Add(machinefacts.PreserveTimeout(w.Machine, w.Timeout)))
		status.PreserveExpiryTime = &until
	}
	v := Verdict{Machine: m, Until: status.PreserveExpiryTime.Time, Began: began}
	if w.Node != nil {
		v.Node, v.Drain = mark(w, a, v.Until)
	}
	return v
}

// stop ends the preservation, if it has begun: first on the Node, and, when nothing is left there, on the machine. With
// forget, what has asked for it goes as well, so that it does not begin anew.
func stop(w World, a asked, begun, forget bool) Verdict {
	m := w.Machine.DeepCopy()
	a.obey(w, m)
	v := Verdict{Machine: m, Node: w.Node}
	if !begun {
		return v
	}
	if w.Node != nil {
		_, lasting := w.Machine.Spec.NodeTemplateSpec.Annotations[v1alpha1.AnnotationPreserve] // it would be put back
		v.Node = unmark(w, forget && a.byNode && !lasting)
		if !sameMarks(w.Node, v.Node) {
			return v
		}
	}
	askedFor := len(m.Annotations)
	if forget {
		delete(m.Annotations, v1alpha1.AnnotationPreserve)
		delete(m.Annotations, v1alpha1.AnnotationLastAppliedNodePreserveValue)
	}
	status := &m.Status.CurrentStatus
	switch over := machinefacts.IsPreservationOver(m, w.Now); {
	case over && machinefacts.HasFailed(m):
		v.Ended = len(m.Annotations) < askedFor
	case status.PreserveExpiryTime != nil:
		status.PreserveExpiryTime, v.Ended = nil, true
	}
	return v
}

// Matters says that preservation may have something to do with the machine whatever its Node says.
func Matters(m *v1alpha1.Machine) bool {
	_, asks := m.Annotations[v1alpha1.AnnotationPreserve]
	_, noted := m.Annotations[v1alpha1.AnnotationLastAppliedNodePreserveValue]
	return asks || noted || m.Status.CurrentStatus.PreserveExpiryTime != nil
}
