package lifecycle

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/nodesync"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/preserve"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// PreservedDrain is how far the drain of the Node of a failed, preserved machine is.
type PreservedDrain struct {
	// State of the drain. The zero value means that it was not looked at in this pass.
	State preserve.Drain
	// Text of it for people, in sentences.
	Text string
	// Again is when to look again; zero when an event starts the next pass.
	Again time.Time
}

// isToBeDeleted reports whether an annotation on the Machine or on its Node requests the deletion
// of the machine.
func isToBeDeleted(w World) bool {
	if w.Machine.Annotations[v1alpha1.AnnotationTriggerDeletion] == "true" {
		return true
	}
	node, _ := ownNode(w)
	return node != nil && node.Annotations[v1alpha1.AnnotationTriggerDeletion] == "true"
}

func deletionAskedFor() []Event {
	return []Event{{Reason: v1alpha1.EventDeletionTriggered, Message: fmt.Sprintf(
		"The machine is deleted because it or its Node has the annotation %s", v1alpha1.AnnotationTriggerDeletion)}}
}

// ownNode returns the machine's Node; nil when it has none, and while it is not known to be the
// machine's. known is false when the Node was only not seen: then the machine may have one.
func ownNode(w World) (node *corev1.Node, known bool) {
	switch {
	case w.NoTarget || NodeName(w.Machine) == "" || w.Node.State == NodeAbsent:
		return nil, true
	case w.Node.State != NodePresent:
		return nil, false
	}
	if owns, _ := ownsNode(w, w.Machine); !owns {
		return nil, true
	}
	return w.Node.Node, true
}

// isMisnamed reports whether the machine names another Node than its own.
func isMisnamed(w World) bool {
	node, _ := ownNode(w)
	return node != nil && node.Name != NodeName(w.Machine)
}

// wantedNode returns what the Node has to carry because of machine and class. What the API server
// has rejected is left out, so that an invalid template does not prevent the claim of a Node.
func wantedNode(w World) nodesync.Wanted {
	wanted := nodesync.Wanted{
		Machine: v1alpha1.RefOf(w.Machine), Rollout: w.Rollout, Applied: nodesync.AppliedOf(w.Machine),
	}
	if !w.UnlabeledNodes {
		wanted.Slot = w.Machine.Labels[v1alpha1.LabelSlot]
	}
	if at, asked := uncordonAt(w.Machine); asked {
		wanted.Uncordon = !w.Now.Before(at) && isCordonedByAutoscaler(w.Node.Node)
	}
	if w.Node.Refused == "" {
		wanted.Template, wanted.Class = &w.Machine.Spec.NodeTemplateSpec, w.Class.Class
	}
	return wanted
}

// preserved adds to a verdict that writes a machine without a Node whether it is preserved.
func preserved(w World, v Verdict) Verdict {
	if v.Do != Rest && v.Do != Save {
		return v
	}
	v, p := addPreservation(w, v, nil)
	if v.Do == Save {
		return v
	}
	return remark(w, v, unknownValue(p))
}

// write has the Node patched, unless this process has to wait before it writes the Node again.
func write(w World, v Verdict, action Action, patch *nodesync.Patch) Verdict {
	if w.Now.Before(w.Node.RestUntil) {
		v.Do, v.Waiting = Rest, "the limit of writes of the Node"
		return wakeAt(w, v, w.Node.RestUntil)
	}
	return Verdict{Do: action, Patch: patch}
}

// restWithNode ends the pass with a Node that is in sync, or as far as the API server accepts, and
// wakes when time alone changes something.
func restWithNode(w World, v Verdict, p preserve.Verdict) Verdict {
	if p.Drain {
		v = wakeAt(w, v, w.PreservedDrain.Again)
	}
	v = forget(w, reportUpdateDrain(w, endPassError(w, uncordoned(w, v))))
	if w.Node.Refused == "" {
		return remark(w, v, unknownValue(p))
	}
	refused := Event{Reason: v1alpha1.EventNodeRefused, Message: fmt.Sprintf(
		"API server rejected the values of nodeTemplate and virtualCapacity for Node %q: %s", w.Node.Node.Name, w.Node.Refused)}
	return remark(w, wakeAt(w, v, w.Node.RefusedUntil), append([]Event{refused}, unknownValue(p)...))
}

// isRemembered reports whether the machine records everything that is written to the Node now and
// that a kubelet must not change. What is written to the Node before that is never removed if this
// process dies.
func isRemembered(w World) bool {
	template := wantedNode(w).Template
	applied := nodesync.AppliedOf(w.Machine)
	return template == nil || applied.Covers(applied.Asked(w.Node.Node, template))
}

// remember writes that record.
func remember(w World) Verdict {
	m, applied := w.Machine.DeepCopy(), nodesync.AppliedOf(w.Machine)
	setApplied(m, applied.With(applied.Asked(w.Node.Node, &m.Spec.NodeTemplateSpec)))
	return Verdict{Do: Save, Machine: m}
}

// forget removes from the record on the machine what was removed from the Node, where the Node is
// in sync. It does so only in the pass that has written the Node: that write has another version
// follow, so that no late one, of a process that has ended, puts anything back.
func forget(w World, v Verdict) Verdict {
	template := wantedNode(w).Template
	if template == nil || !w.Node.Written {
		return v
	}
	applied := nodesync.AppliedOf(w.Machine)
	asked := applied.Asked(w.Node.Node, template)
	if asked.Covers(applied) {
		return v
	}
	if v.Machine == nil {
		v.Machine = w.Machine
	}
	v.Machine = v.Machine.DeepCopy()
	setApplied(v.Machine, asked)
	return v
}

// setApplied records what the fleet has written to the Node that a kubelet must not change; nothing
// is recorded as no annotation.
func setApplied(m *v1alpha1.Machine, applied nodesync.Applied) {
	if delete(m.Annotations, v1alpha1.AnnotationApplied); !applied.IsEmpty() {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationApplied, applied.String())
	}
}

// uncordonAt returns when to uncordon a Node that the cluster-autoscaler has cordoned for a
// deletion that does not happen; asked is false where it has not.
func uncordonAt(m *v1alpha1.Machine) (at time.Time, asked bool) {
	text, asked := m.Annotations[v1alpha1.AnnotationUncordonAt]
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		at = time.Time{} // at once: it was written by a user
	}
	return at, asked
}

// uncordoned removes the request to uncordon from a machine whose Node is in sync, or wakes when it
// is due. A cordon of another client stays.
func uncordoned(w World, v Verdict) Verdict {
	at, asked := uncordonAt(w.Machine)
	switch {
	case !asked:
		return v
	case w.Now.Before(at):
		return wakeAt(w, v, at)
	case v.Machine == nil:
		v.Machine = w.Machine
	}
	v.Machine = v.Machine.DeepCopy()
	delete(v.Machine.Annotations, v1alpha1.AnnotationUncordonAt)
	return v
}

// unknownValue returns the Event of an unknown value; none when there is no such value.
func unknownValue(p preserve.Verdict) []Event {
	if p.Unknown == "" {
		return nil
	}
	return []Event{{Reason: v1alpha1.EventPreserveUnknown, Message: fmt.Sprintf(
		"Annotation %s has the unknown value %q; expected %s, %s or %s",
		v1alpha1.AnnotationPreserve, p.Unknown, v1alpha1.PreserveNow, v1alpha1.PreserveWhenFailed, v1alpha1.PreserveFalse)}}
}

// remark adds to a verdict the Events of lasting states, each when its state begins or changes:
// what was reported is recorded on the machine, for the next pass of any replica.
func remark(w World, v Verdict, lasting []Event) Verdict {
	m := w.Machine
	if v.Machine != nil {
		m = v.Machine
	}
	before := m.Annotations[v1alpha1.AnnotationReported]
	var notes []string
	for _, event := range lasting {
		sum := fnv.New32a()
		_, _ = sum.Write([]byte(event.Message)) // never fails
		note := fmt.Sprintf("%s %08x", event.Reason, sum.Sum32())
		if notes = append(notes, note); !slices.Contains(strings.Split(before, ","), note) {
			v = v.with(event.Reason, event.Message)
		}
	}
	reported := strings.Join(notes, ",")
	if reported == before {
		return v
	}
	v.Machine = m.DeepCopy()
	if metav1.SetMetaDataAnnotation(&v.Machine.ObjectMeta, v1alpha1.AnnotationReported, reported); reported == "" {
		delete(v.Machine.Annotations, v1alpha1.AnnotationReported)
	}
	return v
}

// wakeAt wakes at t, or earlier if the verdict already does; a zero t changes nothing.
func wakeAt(w World, v Verdict, t time.Time) Verdict {
	if !t.IsZero() && (v.Wake == 0 || until(w, t) < v.Wake) {
		v.Wake = until(w, t)
	}
	return v
}

// addPreservation adds to a verdict that writes the machine whether it is preserved. A nil Node
// means that the machine has none.
func addPreservation(w World, v Verdict, node *corev1.Node) (Verdict, preserve.Verdict) {
	m := w.Machine
	if v.Machine != nil {
		m = v.Machine
	}
	p := preserve.Decide(preserve.World{
		Now: w.Now, Timeout: w.Limits.PreserveTimeout, Reach: w.Reach, Machine: m, Node: node,
		Rolling: w.Rollout != nil && w.Rollout.Autoscaler == nodesync.AutoscalerKept,
		Drain:   w.PreservedDrain.State, DrainText: w.PreservedDrain.Text,
	})
	if v.Machine != nil || !machinefacts.Same(p.Machine, m) {
		v.Machine = p.Machine
	}
	v = wakeAt(w, v, p.Until)
	switch {
	case p.Began:
		v = v.with(v1alpha1.EventPreserved, fmt.Sprintf("The machine is preserved until %s", p.Until.UTC().Format(time.RFC3339)))
	case p.Ended != "":
		v = v.with(v1alpha1.EventPreservationEnded, "The machine is not preserved any more, because "+p.Ended)
	}
	return v, p
}
