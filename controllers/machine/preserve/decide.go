package preserve

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach"
)

// World is the input of the decision. All of it is read only.
type World struct {
	Now time.Time
	// Timeout is how long a machine is preserved without its own timeout.
	Timeout time.Duration
	// Reach contains what is known of the API servers, and of times in which nothing was done for the
	// machine.
	Reach reach.Fact
	// Machine in its current state, or as it is about to be written.
	Machine *v1alpha1.Machine
	// Node of the machine; nil if it has none. A Node that was not read is not nil.
	Node *corev1.Node
	// Rolling reports whether the Node has the autoscaler's annotation anyway, because machines are
	// being replaced.
	Rolling bool
	// Drain of the Node, and DrainText its message.
	Drain     Drain
	DrainText string
}

// Drain is the progress of the Node's drain, as far as the Node does not show it.
type Drain int

// The values. DrainUnknown is the zero value: the drain was not checked.
const (
	DrainUnknown Drain = iota
	// DrainRunning means that there are pods left.
	DrainRunning
	// DrainDone means that all pods that must leave have left.
	DrainDone
	// DrainFailed means that some pods could not be evicted, and that this is tried again.
	DrainFailed
	// DrainForced means that all pods have left, some of them by force.
	DrainForced
)

// Verdict is the result of a decision.
type Verdict struct {
	// Machine to be written. It is written before the Node, and Decide is called again after each
	// write.
	Machine *v1alpha1.Machine
	// Node to be written; nil if there is none.
	Node *corev1.Node
	// Drain reports whether the Node has to be drained now.
	Drain bool
	// Until is when the preservation of the machine ends; zero if it is not preserved.
	Until time.Time
	// Began reports whether the preservation begins with this verdict, and Ended is why it has ended
	// with it; "" if it has not.
	Began bool
	Ended string
	// Unknown is an invalid value of the annotation; "" if there is none.
	Unknown string
}

// Decide returns the machine and Node to be written. It is total, and idempotent.
func Decide(w World) Verdict {
	w.Machine = prolonged(w)
	a := read(w)
	expired, failed := machinefacts.IsPreservationOver(w.Machine, w.Now), machinefacts.HasFailed(w.Machine)
	begun := w.Machine.Status.CurrentStatus.PreserveExpiryTime != nil || showsPreserved(w.Node)
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

// prolonged returns the machine with its expiry time after a time in which nothing could be done
// for it, which does not count. It is recorded when that was done, so that no owner does it again.
// Nothing else changes an expiry time that was written.
func prolonged(w World) *v1alpha1.Machine {
	expiry := w.Machine.Status.CurrentStatus.PreserveExpiryTime
	if expiry == nil {
		return w.Machine
	}
	since, err := time.Parse(time.RFC3339, w.Machine.Annotations[v1alpha1.AnnotationPreserveProlonged])
	if err != nil { // it was not prolonged yet
		since = beganAt(w, expiry.Time)
	} else if since.After(w.Reach.From) && w.Reach.Back.Sub(since) < reach.Settle {
		// For this outage, as one replica or another has observed it.
		return w.Machine
	}
	until := w.Reach.Extend(since, expiry.Time).Truncate(time.Second)
	if !until.After(expiry.Time) {
		return w.Machine
	}
	m := w.Machine.DeepCopy()
	m.Status.CurrentStatus.PreserveExpiryTime = &metav1.Time{Time: until}
	annotate(m, v1alpha1.AnnotationPreserveProlonged, w.Now.UTC().Format(time.RFC3339))
	return m
}

// beganAt returns when the preservation began. The expiry time does not show that, because it may
// have been edited, and so may the timeout: a time in which nothing could be done before the
// preservation began must not prolong it.
func beganAt(w World, expiry time.Time) time.Time {
	began, err := time.Parse(time.RFC3339, w.Machine.Annotations[v1alpha1.AnnotationPreserveBegan])
	if err != nil { // it began under a manager that does not record it
		return expiry.Add(-machinefacts.PreserveTimeout(w.Machine, w.Timeout))
	}
	return began
}

// unknown leaves the preservation unchanged until its time is over: a typo must not delete a
// machine.
func unknown(w World, a asked, expired bool) Verdict {
	a.byNode, a.byMachine = false, false // an invalid value is not recorded
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

// asked is the request in the annotations.
type asked struct {
	// value that has precedence.
	value string
	// byNode reports whether it is the Node's, byMachine whether it is the machine's because the Node
	// was deleted.
	byNode, byMachine bool
}

// read returns the request that has precedence. The last value of a deleted Node is recorded on the
// machine.
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

// apply records on the machine the value of its Node, which replaces the machine's own; or removes
// the recorded value of a deleted Node, if the machine has its own. So the machine always shows the
// value that has precedence.
func (a asked) apply(w World, m *v1alpha1.Machine) {
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
	if value == "" {
		delete(m.Annotations, key)
		return
	}
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, key, value)
}

// keep begins or continues the preservation of the machine.
func keep(w World, a asked) Verdict {
	m := w.Machine.DeepCopy()
	a.apply(w, m)
	status := &m.Status.CurrentStatus
	began := status.PreserveExpiryTime == nil
	if began {
		until := metav1.NewTime(w.Now.Add(machinefacts.PreserveTimeout(w.Machine, w.Timeout)))
		status.PreserveExpiryTime = &until
		annotate(m, v1alpha1.AnnotationPreserveBegan, w.Now.UTC().Format(time.RFC3339))
		delete(m.Annotations, v1alpha1.AnnotationPreserveProlonged) // of an earlier one
	}
	v := Verdict{Machine: m, Until: status.PreserveExpiryTime.Time, Began: began}
	if w.Node != nil {
		v.Node, v.Drain = showPreserved(w, a, v.Until)
	}
	return v
}

// stop ends the preservation, if it has begun: first on the Node, and, when nothing is left there,
// on the machine. With forget, the request is removed as well, so that the preservation does not
// begin again.
func stop(w World, a asked, begun, forget bool) Verdict {
	m := w.Machine.DeepCopy()
	a.apply(w, m)
	v := Verdict{Machine: m, Node: w.Node}
	if !begun {
		return v
	}
	if w.Node != nil {
		_, lasting := w.Machine.Spec.NodeTemplateSpec.Annotations[v1alpha1.AnnotationPreserve] // it would be added again
		v.Node = removePreserved(w, forget && a.byNode && !lasting)
		if !samePreserved(w.Node, v.Node) {
			return v
		}
	}
	asks := len(m.Annotations)
	if forget {
		delete(m.Annotations, v1alpha1.AnnotationPreserve)
		delete(m.Annotations, v1alpha1.AnnotationLastAppliedNodePreserveValue)
	}
	status := &m.Status.CurrentStatus
	switch over := machinefacts.IsPreservationOver(m, w.Now); {
	case over && machinefacts.HasFailed(m) && len(m.Annotations) == asks: // it had ended before
	case over && machinefacts.HasFailed(m):
		v.Ended = a.whyEnded(over)
	case status.PreserveExpiryTime != nil:
		status.PreserveExpiryTime, v.Ended = nil, a.whyEnded(over)
		delete(m.Annotations, v1alpha1.AnnotationPreserveBegan)
		delete(m.Annotations, v1alpha1.AnnotationPreserveProlonged)
	}
	return v
}

// whyEnded returns why a preservation has ended, with this request and, with over, after its time.
func (a asked) whyEnded(over bool) string {
	switch {
	case over:
		return "its time is over"
	case a.value == "":
		return "annotation " + v1alpha1.AnnotationPreserve + " was removed"
	case a.value == v1alpha1.PreserveFalse:
		return "annotation " + v1alpha1.AnnotationPreserve + " is " + a.value
	}
	return "it has recovered"
}

// Matters reports whether preservation may concern the machine regardless of the annotation of its
// Node.
func Matters(m *v1alpha1.Machine) bool {
	_, asks := m.Annotations[v1alpha1.AnnotationPreserve]
	_, noted := m.Annotations[v1alpha1.AnnotationLastAppliedNodePreserveValue]
	return asks || noted || m.Status.CurrentStatus.PreserveExpiryTime != nil
}
